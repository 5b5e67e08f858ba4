#include "backend/cpu/x86/vec_avx2.h"

#include "backend/cpu/x86/memory_read_body.h"
