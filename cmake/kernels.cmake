# Kernel files for one instruction set each: src/backend/cpu/<arch>/<op>_<isa>.c. A file is compiled when the
# compiler takes the flags AND the assembler takes what they produce; otherwise it is left out with a notice
# and the run-time table keeps the kernel below it. Their text is src/backend/cpu/vec/<op>_body.h.
include(CheckCSourceCompiles)

set(K3_ISA_avx2 "-mavx2;-mfma;-mf16c")
set(K3_PROBE_avx2 "#include <immintrin.h>
int main(void) { __m256 a = _mm256_fmadd_ps(_mm256_set1_ps(1), _mm256_set1_ps(2), _mm256_set1_ps(3)); return _mm256_movemask_ps(a); }")
set(K3_ISA_avx512 "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mavx2;-mfma;-mf16c")
set(K3_PROBE_avx512 "#include <immintrin.h>
int main(void) { __m512i a = _mm512_dpbusd_epi32(_mm512_set1_epi8(1), _mm512_set1_epi8(2), _mm512_set1_epi8(3)); return (int)_mm512_reduce_add_epi32(a); }")
set(K3_ISA_avx512bf16 "${K3_ISA_avx512};-mavx512bf16")
set(K3_PROBE_avx512bf16 "#include <immintrin.h>
int main(void) { __m512 a = _mm512_set1_ps(1); __m512bh b = _mm512_cvtne2ps_pbh(a, a); return (int)_mm512_reduce_add_ps(_mm512_dpbf16_ps(a, b, b)); }")
set(K3_ISA_amx "${K3_ISA_avx512bf16};-mamx-tile;-mamx-int8;-mamx-bf16")
set(K3_PROBE_amx "#include <immintrin.h>
int main(void) { _tile_zero(0); _tile_dpbssd(0, 1, 2); _tile_dpbf16ps(0, 1, 2); _tile_release(); return 0; }")
set(K3_ISA_neon "-march=armv8.2-a+dotprod")
set(K3_PROBE_neon "#include <arm_neon.h>
int main(void) { return vgetq_lane_s32(vdotq_s32(vdupq_n_s32(0), vdupq_n_s8(1), vdupq_n_s8(2)), 0); }")

function(k3_add_kernels target)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(arch x86)
    set(isas avx2 avx512 avx512bf16 amx)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(arch arm)
    set(isas neon)
  endif()
  foreach(isa ${isas})
    string(REPLACE ";" " " flags "${K3_ISA_${isa}}")
    set(CMAKE_REQUIRED_FLAGS "${flags}")
    check_c_source_compiles("${K3_PROBE_${isa}}" K3_HAVE_${isa})
    unset(CMAKE_REQUIRED_FLAGS)
    file(GLOB files CONFIGURE_DEPENDS src/backend/cpu/${arch}/*_${isa}.c)
    if(K3_HAVE_${isa} AND files)
      target_sources(${target} PRIVATE ${files})
      set(options ${K3_ISA_${isa}})
      if(K3_SANITIZE)
        list(APPEND options -O1) # it makes large kernels larger: at -O2 one file alone takes minutes to compile
      endif()
      set_source_files_properties(${files} PROPERTIES COMPILE_OPTIONS "${options}")
      string(TOUPPER ${isa} upper)
      target_compile_definitions(${target} PRIVATE K3_HAVE_${upper}=1)
    elseif(files)
      message(NOTICE "k3: this compiler cannot build ${isa} kernels; they are left out")
    endif()
  endforeach()
endfunction()
