#include "backend/cpu/x86/vec_avx512.h"

#include "backend/cpu/vec/memory_read_body.h"
