#include "backend/cpu/x86/decode_avx512.h"

#include "backend/cpu/vec/matmul_body.h"
