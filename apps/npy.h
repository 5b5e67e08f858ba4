/* Float32 matrices as NumPy's .npy, written row by row. */
#ifndef K3_APPS_NPY_H
#define K3_APPS_NPY_H

#include <stddef.h>

typedef struct app_npy app_npy;

/* Each function that fails prints one line that names the file, and returns NULL or 0. */
app_npy *app_npy_open(const char *path, size_t n_rows, size_t n_columns);
int app_npy_write(app_npy *npy, const float *rows, size_t n_rows);
/* Closes the file; 1 if every byte of it has reached the system. What is incomplete is removed, if it is a file. */
int app_npy_close(app_npy *npy);

#endif
