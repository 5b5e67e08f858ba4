/* What the shards that `k3 pack` writes say of themselves, in the strings of their __metadata__. */
#ifndef K3_CKPT_PACKED_H
#define K3_CKPT_PACKED_H

#include "base/json.h"

#define K3_PACK_VERSION "1"
#define K3_PACK_KEY_VERSION "k3_pack"
#define K3_PACK_KEY_TRUNK "k3_trunk"   /* bf16, int8 or int4: what was asked for */
#define K3_PACK_KEY_CODES "k3_codes"   /* int4_g64: what a U8 matrix outside the experts holds; I8 is int8 */
#define K3_PACK_KEY_SOURCE "k3_source" /* 16 hex digits over the headers of the model that it was packed from */
#define K3_PACK_CODES "int4_g64"
#define K3_PACK_PADDING "k3_padding." /* begins the names of tensors that only fill room */
#define K3_PACK_SCALE "_scale"        /* ends the names of scales: [rows, scales of a row] F32 */

enum { K3_PACK_ALIGN = 64, K3_PACK_EXPERT_ALIGN = 4096 }; /* of tensors, and of experts and the first byte of data, in the file */

typedef struct k3_pack_tag {
    int is_packed;
    int has_int4; /* U8 matrices outside the experts are int4_g64 */
    char trunk[8], source[17];
} k3_pack_tag;

/* metadata: the object, or NULL. K3_E_UNSUPPORTED: written by another version. */
k3_status k3_pack_read_tag(k3_pack_tag *out, const k3_json *metadata, const char *path, k3_error *err);
int k3_pack_is_padding(const char *name);

#endif
