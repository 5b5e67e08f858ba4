# Reads the log of `ctest -V` and counts single cmocka tests. Prints the failed and skipped ones with what they said, then
# "PASSED FAILED SKIPPED" as the last line. A program that died before its own summary, or failed without one, counts as one failure.
function number(line) { match(line, /\] [0-9]+ test/); return substr(line, RSTART + 2, RLENGTH - 7) + 0 }
/^test [0-9]+$/ { next }
match($0, /^[0-9]+: /) {
    id = substr($0, 1, RLENGTH - 2) + 0
    line = substr($0, RLENGTH + 1)
    if (line ~ /^\[ RUN      \] /) { said[id] = ""; next }
    if (line ~ /^\[  PASSED  \] [0-9]+ test/) { n_passed += number(line); n_ran[id] += number(line); next }
    if (line ~ /^\[  FAILED  \] [0-9]+ test/) { n_failed += number(line); n_bad[id] += number(line); listing[id] = 1; next }
    if (line ~ /^\[  SKIPPED \] [0-9]+ test/) { n_skipped += number(line); n_ran[id] += number(line); listing[id] = 1; next }
    if (line ~ /^\[==========\] Running/) { listing[id] = 0; next }
    if (line ~ /^\[  (FAILED |SKIPPED)  ?\] / && !listing[id]) {
        name = line; sub(/^\[[^]]*\] */, "", name)
        print (line ~ /FAILED/ ? "failed:  " : "skipped: ") name said[id]
        next
    }
    if (line !~ /^\[/ && line != "") said[id] = said[id] "\n           " line
    next
}
# " 3/20 Test  #3: base/test_pool .....***Failed  0.02 sec"
match($0, /Test +#[0-9]+: [^ ]+/) {
    name = substr($0, RSTART, RLENGTH)
    id = name; sub(/Test +#/, "", id); id += 0
    sub(/.*: /, "", name)
    if ($0 ~ /\*\*\*|Failed|Exception/ && !n_bad[id]) { n_failed++; print "failed:  " name " (died or ran out of time)" said[id] }
    else if ($0 ~ / Passed /&& !n_ran[id]) { n_failed++; print "failed:  " name " (ran no test)" }
}
END { print n_passed + 0, n_failed + 0, n_skipped + 0 }
