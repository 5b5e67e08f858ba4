#include "backend/cpu/x86/vec_avx2.h"

#include <string.h>

#include "backend/cpu/x86/vi_avx2.h"

enum { PEAK_CHAINS = 12 };
#include "backend/cpu/vec/peak_body.h"
