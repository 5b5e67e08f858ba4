#include "backend/cpu/x86/vec_avx512.h"

#include "backend/cpu/vec/attnres_mix_body.h"
