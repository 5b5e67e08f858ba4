#include "backend/cpu/x86/vec_avx512.h"

#include "backend/cpu/x86/kda_recur_body.h"
