/* 16x16 matrices spread over a subgroup, f16 factors and f32 sums, in whichever of two spellings the compiler knows. The second has no uses
 * of matrices in their types; columns that no matrix has stand for them until cmake/khr_matrix.c translates it to the first.
 *     K3_MATRIX_A a; K3_MATRIX_B b; K3_MATRIX_SUM c = K3_MATRIX_SUM(0.0);
 *     K3_LOAD_A(a, array, at, stride);      a[m][k] from array[at + m * stride ..], k along memory
 *     K3_LOAD_A_COLUMNS(a, array, at, stride); a[m][k] from array[at + k * stride ..], m along memory
 *     K3_LOAD_B(b, array, at, stride);      b[k][n] from array[at + n * stride ..], k along memory: row n of the array is column n
 *     K3_LOAD_B_ROWS(b, array, at, stride); b[k][n] from array[at + k * stride ..], n along memory
 *     c = K3_MULTIPLY_ADD(a, b, c);
 *     K3_LOAD_SUM(c, array, at, stride);    c[m][n] from array[at + m * stride ..], n along memory
 *     K3_LOAD_SUM_COLUMNS(c, array, at, stride); c[m][n] from array[at + n * stride ..], m along memory; stride 0 repeats a column
 *     K3_STORE_SUM(c, array, at, stride);   c[m][n] to array[at + m * stride ..], n along memory; also a K3_MATRIX_HALF(c), rounded to f16
 *     c[i], i < K3_LENGTH(c), of a sum are the invocation's own elements; sums loaded alike have the same elements there
 * `at` and `stride` count elements of the array, which may be wider than a factor: 8 halves in a uvec4. Rows 16 bytes longer than a power
 * of two keep the loads free of bank conflicts. Uniform over the subgroup; the host dispatches these kernels with full subgroups. */
#ifndef K3_MATRIX_GLSL
#define K3_MATRIX_GLSL

#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

#ifdef K3_MATRIX_KHR

#extension GL_KHR_cooperative_matrix : require
#define K3_MATRIX_A coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define K3_MATRIX_B coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define K3_MATRIX_SUM coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define K3_MATRIX_HALF coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define K3_LOAD_A(m, array, at, stride) coopMatLoad(m, array, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define K3_LOAD_A_COLUMNS(m, array, at, stride) coopMatLoad(m, array, at, stride, gl_CooperativeMatrixLayoutColumnMajor)
#define K3_LOAD_B(m, array, at, stride) coopMatLoad(m, array, at, stride, gl_CooperativeMatrixLayoutColumnMajor)
#define K3_LOAD_B_ROWS(m, array, at, stride) coopMatLoad(m, array, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define K3_LOAD_SUM(m, array, at, stride) coopMatLoad(m, array, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define K3_LOAD_SUM_COLUMNS(m, array, at, stride) coopMatLoad(m, array, at, stride, gl_CooperativeMatrixLayoutColumnMajor)
#define K3_STORE_SUM(m, array, at, stride) coopMatStore(m, array, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define K3_MULTIPLY_ADD(a, b, c) coopMatMulAdd(a, b, c)
#define K3_LENGTH(m) m.length()

#else

#extension GL_NV_cooperative_matrix : require
#ifndef K3_AS_B /* the check of the kernels says 16 for both */
#define K3_AS_B 17
#define K3_AS_HALF_SUM 18
#endif
#define K3_MATRIX_A fcoopmatNV<16, gl_ScopeSubgroup, 16, 16>
#define K3_MATRIX_B fcoopmatNV<16, gl_ScopeSubgroup, 16, K3_AS_B>
#define K3_MATRIX_SUM fcoopmatNV<32, gl_ScopeSubgroup, 16, 16>
#define K3_MATRIX_HALF fcoopmatNV<16, gl_ScopeSubgroup, 16, K3_AS_HALF_SUM>
#define K3_LOAD_A(m, array, at, stride) coopMatLoadNV(m, array, at, stride, false)
#define K3_LOAD_A_COLUMNS(m, array, at, stride) coopMatLoadNV(m, array, at, stride, true)
#define K3_LOAD_B(m, array, at, stride) coopMatLoadNV(m, array, at, stride, true)
#define K3_LOAD_B_ROWS(m, array, at, stride) coopMatLoadNV(m, array, at, stride, false)
#define K3_LOAD_SUM(m, array, at, stride) coopMatLoadNV(m, array, at, stride, false)
#define K3_LOAD_SUM_COLUMNS(m, array, at, stride) coopMatLoadNV(m, array, at, stride, true)
#define K3_STORE_SUM(m, array, at, stride) coopMatStoreNV(m, array, at, stride, false)
#define K3_MULTIPLY_ADD(a, b, c) coopMatMulAddNV(a, b, c)
#define K3_LENGTH(m) 8 /* of 256 elements, in a subgroup of 32; m.length() is a constant here, which the other spelling has no word for */

#endif

#endif
