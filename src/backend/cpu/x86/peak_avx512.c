#include "backend/cpu/x86/vec_avx512.h"

#include <string.h>

#include "backend/cpu/x86/vi_avx512.h"

enum { PEAK_CHAINS = 16 };
#include "backend/cpu/vec/peak_body.h"
