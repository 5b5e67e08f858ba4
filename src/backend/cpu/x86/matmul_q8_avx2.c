#include "backend/cpu/x86/vec_avx2.h"

#include <string.h>

#include "backend/cpu/x86/vi_avx2.h"

#include "backend/cpu/vec/matmul_q8_few_body.h"

#include "backend/cpu/vec/matmul_q8_body.h"
