/* Cutting text into the pieces that byte-pair encoding works on: first the coarse cuts of the released tokenizer, then K3's pattern.
 * A pretokenizer is read-only after opening and serves any number of threads; a splitter belongs to one. */
#ifndef K3_TEXT_PRETOKENIZE_H
#define K3_TEXT_PRETOKENIZE_H

#include "base/error.h"

/* The coarse cuts: slices of 400,000 code points, and inside a slice no more than 25,000 code points in a row that are all white space or
 * all not (Python's str.isspace). No match and no look-ahead crosses a cut. Zero-initialise, then ask for one cut after another. */
enum { K3_CUT_SLICE = 400000, K3_CUT_RUN = 25000 };
typedef struct k3_cut {
    size_t n_slice; /* code points since the slice began */
    size_t n_run;   /* code points of the run that the last one belongs to */
    int is_space;
} k3_cut;
/* Length in bytes of the next stretch of valid UTF-8 `text` [n], n > 0; n itself if no cut follows. *late is 1 if the stretch holds
 * code points that k3_splitter_start must be told about. */
size_t k3_cut_next(k3_cut *cut, const char *text, size_t n, int *late);

typedef struct k3_pretokenizer k3_pretokenizer;
k3_status k3_pretokenizer_open(k3_pretokenizer **out, k3_error *err);
void k3_pretokenizer_close(k3_pretokenizer *pretokenizer);

typedef struct k3_splitter k3_splitter;
k3_status k3_splitter_open(k3_splitter **out, const k3_pretokenizer *pretokenizer, k3_error *err);
/* Begins a string of valid UTF-8 that stays where it is until the last piece was taken. Look-ahead ends at its end. */
k3_status k3_splitter_start(k3_splitter *splitter, const char *text, size_t n, int late, k3_error *err);
/* Length of the next piece in bytes; 0 at the end of the text. */
k3_status k3_splitter_next(k3_splitter *splitter, size_t *n_piece, k3_error *err);
void k3_splitter_close(k3_splitter *splitter);

#endif
