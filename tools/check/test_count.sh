#!/bin/sh
# The counting of tests sees failures, skips, deaths and programs that run nothing.
set -eu
count=$(cd "$(dirname "$0")" && pwd)/count.awk
got=$(awk -f "$count" <<'LOG'
1: [==========] Running 2 test(s).
1: [ RUN      ] good
1: [       OK ] good
2: [==========] Running 3 test(s).
1: [ RUN      ] no_device
1: no device here
2: [ RUN      ] bad
1: [  SKIPPED ] no_device
1: [==========] 2 test(s) run.
1: [  PASSED  ] 1 test(s).
1: [  SKIPPED ] 1 test(s), listed below:
1: [  SKIPPED ] no_device
1/4 Test #1: base/test_good ....................   Passed    0.01 sec
2: 0x1 != 0x2
2: [  FAILED  ] bad
2: [==========] 3 test(s) run.
2: [  PASSED  ] 2 test(s).
2: [  FAILED  ] 1 test(s), listed below:
2: [  FAILED  ] bad
2: 
2:  1 FAILED TEST(S)
2/4 Test #2: base/test_bad .....................***Failed    0.01 sec
3: [==========] Running 9 test(s).
3: [ RUN      ] crash
3/4 Test #3: base/test_crash ...................***Exception: SegFault  0.10 sec
4/4 Test #4: base/test_empty ...................   Passed    0.01 sec
The following tests FAILED:
	  2 - base/test_bad (Failed)
	  3 - base/test_crash (SEGFAULT)
LOG
)
want='skipped: no_device
           no device here
failed:  bad
           0x1 != 0x2
failed:  base/test_crash (died or ran out of time)
failed:  base/test_empty (ran no test)
3 3 1'
if [ "$got" != "$want" ]; then
    printf 'count: found\n%s\nwanted\n%s\n' "$got" "$want" >&2
    exit 1
fi
