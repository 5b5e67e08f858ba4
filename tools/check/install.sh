#!/bin/sh
# install.sh BUILD: what `cmake --install` puts somewhere works there (case J05). The library shows the functions of k3.h and no others, the
# header is good C++ too, the example of examples/ answers as the program does, manual page and completions are well-formed, the pages that
# help names are there. The program runs in an empty folder without any of the build's variables, and writes nothing.
set -eu
build=$1
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
cmake --install "$build" --prefix "$at" >/dev/null

export PKG_CONFIG_PATH="$(dirname "$(find "$at" -name k3.pc)")"
library=$(pkg-config --variable=libdir k3)

sed -n 's/^[a-z].*[ *]\(k3_[a-z0-9_]*\)(.*/\1/p' include/k3.h | grep -v '^k3_progress$\|^k3_chat_sink$' | sort -u >"$at/declared"
nm -D --defined-only "$library/libk3.so" | awk '$2 == "T" { print $3 }' | sort -u >"$at/shown"
diff "$at/declared" "$at/shown" || {
    echo "install: libk3.so shows other functions than k3.h declares (< declared, > shown)"
    exit 1
}
echo '#include <k3.h>' >"$at/header.cc"
! command -v c++ >/dev/null || c++ -fsyntax-only $(pkg-config --cflags k3) "$at/header.cc"

cc examples/answer.c $(pkg-config --cflags --libs k3) -o "$at/answer"
question='What is the capital of France?'
said=$(LD_LIBRARY_PATH=$library "$at/answer" models/k3-mini "$question" 2>/dev/null)
wanted=$("$at/bin/k3" run models/k3-mini --chat --quiet --seed 1 -p "$question")
[ "$said" = "$wanted" ] || {
    echo "install: the example says \"$said\", k3 run says \"$wanted\""
    exit 1
}

model=$PWD/models/k3-mini
mkdir "$at/empty"
said=$(cd "$at/empty" && env -i "$at/bin/k3" run "$model" --chat --quiet --seed 1 -p "$question")
[ "$said" = "$wanted" ] && [ -z "$(ls -A "$at/empty")" ] || {
    echo "install: in an empty folder k3 run says \"$said\", and leaves \"$(ls -A "$at/empty")\""
    exit 1
}
for name in LICENSE README.md $(for verb in serve run bench; do "$at/bin/k3" help $verb; done | grep -o 'docs/[a-z]*\.md' | sort -u); do
    [ -n "$(find "$at" -path "*/doc/*/$name")" ] || {
        echo "install: $name is not there"
        exit 1
    }
done

# Case J07: what is written to is in .bss, not in the file.
if command -v size >/dev/null; then
    for file in "$at/bin/k3" "$library/libk3.so"; do
        size -A "$file" | awk -v file="$file" '$1 == ".data" && $2 > 4096 { print "install: " file " has " $2 " bytes in .data"; exit 1 }'
    done
fi

bash -n "$(find "$at" -path '*bash*' -name k3)"
! command -v zsh >/dev/null || zsh -n "$(find "$at" -name _k3)"
! command -v fish >/dev/null || fish -n "$(find "$at" -name k3.fish)"
page=$(find "$at" -name k3.1)
for verb in $("$at/bin/k3" help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    grep -q "^\.SS \"k3 $verb" "$page" || {
        echo "install: the manual page does not have the verb $verb"
        exit 1
    }
done
said=
! command -v groff >/dev/null || said=$(groff -man -Tutf8 -ww "$page" 2>&1 >/dev/null)
# The unit names the prefix of the build, which is not this one; whether there is a manual page of this machine does not matter.
unit=$(find "$at" -name k3.service)
if [ -n "$unit" ] && command -v systemd-analyze >/dev/null; then
    sed -i "s#^ExecStart=[^ ]*/k3 #ExecStart=$at/bin/k3 #" "$unit"
    said=$said$(systemd-analyze --man=no verify "$unit" 2>&1 || true)
fi
[ -z "$said" ] || {
    echo "install: $said"
    exit 1
}
