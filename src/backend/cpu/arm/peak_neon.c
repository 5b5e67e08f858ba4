#include "backend/cpu/arm/vec_neon.h"

#include <string.h>

#include "backend/cpu/arm/vi_neon.h"

enum { PEAK_CHAINS = 16 };
#include "backend/cpu/vec/peak_body.h"
