#include "backend/cpu/x86/vec_avx2.h"

#include "backend/cpu/vec/kda_recur_body.h"
