#include "backend/backend.h"

double k3_memory_rate(int threads)
{
    return k3_cpu_memory_rate(threads);
}
