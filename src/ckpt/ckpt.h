/* A checkpoint folder: config.json, safetensors shards, index; every tensor known by role and checked before a byte is read. */
#ifndef K3_CKPT_CKPT_H
#define K3_CKPT_CKPT_H

#include "ckpt/hparams.h"

/* INT8 and INT4_G64 are matrices of a packed folder (k3_pack), with scales of their own. */
typedef enum k3_dtype { K3_DT_F32, K3_DT_BF16, K3_DT_U8, K3_DT_OTHER, K3_DT_INT8, K3_DT_INT4_G64 } k3_dtype;

static inline int k3_dtype_is_packed(k3_dtype dtype)
{
    return dtype >= K3_DT_INT8;
}

typedef struct k3_tensor_info {
    const char *name;
    k3_dtype dtype; /* packed 4-bit codes are U8 with half the columns, also when the file spells them F4; E8M0 scales are U8 */
    int rank;
    int64_t shape[4]; /* of a tensor with a role: as in specification 2.2, also when the file leaves out or adds sizes of 1, or packs it */
    int shard;        /* index into the checkpoint's shards */
    uint64_t offset;  /* of the first byte, from the start of the shard file */
    uint64_t bytes;
} k3_tensor_info;

/* Tensors by what they do. Comments give the name's tail and the shape; specification 2.2. */
typedef enum k3_role {
    /* global */
    K3_R_EMBED,
    K3_R_NORM,
    K3_R_OUT_RES_NORM,
    K3_R_OUT_RES_PROJ,
    K3_R_HEAD,
    /* every layer */
    K3_R_INPUT_NORM,
    K3_R_POST_NORM,
    K3_R_ATTN_RES_NORM,
    K3_R_ATTN_RES_PROJ,
    K3_R_MLP_RES_NORM,
    K3_R_MLP_RES_PROJ,
    /* KDA: self_attn.* */
    K3_R_KDA_Q,
    K3_R_KDA_K,
    K3_R_KDA_V,
    K3_R_KDA_Q_CONV,
    K3_R_KDA_K_CONV,
    K3_R_KDA_V_CONV,
    K3_R_KDA_F_A,
    K3_R_KDA_F_B,
    K3_R_KDA_A_LOG,
    K3_R_KDA_DT_BIAS,
    K3_R_KDA_B,
    K3_R_KDA_G,
    K3_R_KDA_O_NORM,
    K3_R_KDA_O,
    /* MLA: self_attn.* */
    K3_R_MLA_Q_A,
    K3_R_MLA_Q_A_NORM,
    K3_R_MLA_Q_B,
    K3_R_MLA_KV_A,
    K3_R_MLA_KV_A_NORM,
    K3_R_MLA_KV_B,
    K3_R_MLA_G,
    K3_R_MLA_O,
    /* dense FFN: mlp.* */
    K3_R_DENSE_GATE,
    K3_R_DENSE_UP,
    K3_R_DENSE_DOWN,
    /* MoE: block_sparse_moe.* */
    K3_R_ROUTER,
    K3_R_ROUTER_BIAS,
    K3_R_LATENT_DOWN,
    K3_R_LATENT_NORM,
    K3_R_LATENT_UP,
    K3_R_SHARED_GATE,
    K3_R_SHARED_UP,
    K3_R_SHARED_DOWN,
    /* routed expert: experts.{e}.{w1,w2,w3}.{weight_packed,weight_scale}; w1 = gate, w3 = up, w2 = down */
    K3_R_W1,
    K3_R_W1_SCALE,
    K3_R_W2,
    K3_R_W2_SCALE,
    K3_R_W3,
    K3_R_W3_SCALE,
    K3_N_ROLES
} k3_role;

typedef struct k3_ckpt k3_ckpt;

/* Opens and checks a folder (or a hub cache root, or a link to either): config, index if present, all shard headers (parsed in
 * parallel), then presence, shape and dtype of every tensor the model needs. Tensors outside the routed experts may be BF16 or F32,
 * whatever the release has. The only data read is the padding of A_log. Costs < 2 s on the real model. */
k3_status k3_ckpt_open(k3_ckpt **out, const char *folder, k3_error *err);
void k3_ckpt_close(k3_ckpt *ckpt);

const k3_hparams *k3_ckpt_hparams(const k3_ckpt *ckpt);
const char *k3_ckpt_folder(const k3_ckpt *ckpt);                           /* the resolved folder that holds config.json */
const char *k3_ckpt_warning(const k3_ckpt *ckpt);                          /* one line or "" */
uint64_t k3_ckpt_total_bytes(const k3_ckpt *ckpt, uint64_t *expert_bytes); /* of the language model's tensors */

uint64_t k3_ckpt_n_params(const k3_ckpt *ckpt); /* of the language model; a packed code is one parameter, a scale none */

/* The tensor of a role; layer and expert are ignored where they do not apply. NULL if the model has none (an MLA role in a KDA layer). */
const k3_tensor_info *k3_ckpt_role(const k3_ckpt *ckpt, k3_role role, int layer, int expert);
/* The scales of a matrix outside the experts that is INT8 or INT4_G64: F32 [rows, scales of a row]. NULL: it is not. */
const k3_tensor_info *k3_ckpt_scale(const k3_ckpt *ckpt, k3_role role, int layer);
/* The trunk's precision if the folder was packed: "bf16", "int8" or "int4"; NULL if it was not. */
const char *k3_ckpt_packed(const k3_ckpt *ckpt);

int k3_ckpt_n_shards(const k3_ckpt *ckpt);
const char *k3_ckpt_shard_path(const k3_ckpt *ckpt, int shard);
int k3_ckpt_shard_fd(const k3_ckpt *ckpt, int shard); /* open for reading as long as the checkpoint is */
/* K3_E_IO if another file has taken the shard's place since the model was opened: to be asked by who has opened the path anew. */
k3_status k3_ckpt_check_shard(const k3_ckpt *ckpt, int shard, k3_error *err);
uint64_t k3_ckpt_shard_bytes(const k3_ckpt *ckpt, int shard);

/* Shards may lie on several drives, as links or by mounts. Drives are told apart by the file system's device, and numbered in the order of
 * their first shards; those beyond K3_MAX_DRIVES count as the last. */
enum { K3_MAX_DRIVES = 8 };
int k3_ckpt_n_drives(const k3_ckpt *ckpt);
int k3_ckpt_shard_drive(const k3_ckpt *ckpt, int shard);
uint64_t k3_ckpt_drive_device(const k3_ckpt *ckpt, int drive);

/* Reads n bytes of the tensor from byte `at` of its data. Handles short reads and EINTR. Thread-safe. */
k3_status k3_ckpt_read(const k3_ckpt *ckpt, void *dst, const k3_tensor_info *tensor, uint64_t at, uint64_t n, k3_error *err);

/* A malloc'd description for `k3 inspect`: files, dimensions, tensors by role with shapes, dtypes, bytes, totals. */
char *k3_ckpt_describe(const k3_ckpt *ckpt);

#endif
