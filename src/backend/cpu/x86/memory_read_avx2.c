#include "backend/cpu/x86/vec_avx2.h"

#include "backend/cpu/vec/memory_read_body.h"
