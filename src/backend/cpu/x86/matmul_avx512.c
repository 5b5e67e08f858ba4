#include "backend/cpu/x86/decode_avx512.h"

#include "backend/cpu/x86/matmul_body.h"
