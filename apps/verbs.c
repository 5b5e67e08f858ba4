/* The verbs and their options. */
#include "app.h"

#define AT(field) offsetof(app_options, field)

static const app_option engine_options[] = {
    {"--backend", "NAME", APP_TEXT, AT(backend), 0, 0, "auto",
     "what computes: cpu, cpu:LEVEL with scalar, avx2, avx512, avx512bf16, amx, neon; vulkan or metal, vulkan:DEVICE or metal:DEVICE with "
     "a number or a part of a name from `k3 devices`. auto: a GPU that is no software, else the CPU"},
    {"--threads", "N", APP_COUNT, AT(threads), 0, 4096, "0", "threads that compute; 0: one for each core this process may use"},
    {"--ram", "SIZE", APP_SIZE, AT(ram), 0, 0, "what is free",
     "memory to use in all, such as 8G; routed experts take what the trunk and the conversations leave, and the rest is read from disk"},
    {"--lock", NULL, APP_FLAG, AT(lock), 0, 0, NULL, "keep trunk and experts from being paged out, as far as the system allows"},
    {"--vram", "SIZE", APP_SIZE, AT(vram), 0, 0, "what is free",
     "memory to use of each device, such as 512M or 24G; experts take what is left"},
    {"--disk-rate", "SIZE", APP_SIZE, AT(disk_rate), 0, 0, NULL,
     "bytes that each drive of the model delivers a second, such as 3G: --stats tells the share of it; if it is not given, `k3 plan` "
     "measures them, and so does a start if the model lies on several and does not fit memory"},
    {"--usage", "FILE", APP_TEXT, AT(usage), 0, 0, NULL,
     "keep how often experts were used in this file; the next start fills memory with those used most before the first token"},
    {"--expert-devices", "LIST", APP_TEXT, AT(expert_devices), 0, 0, NULL,
     "further devices that hold routed experts, separated by commas, such as vulkan:1,vulkan:2"},
    {"--kernel-cache", "DIR", APP_TEXT, AT(kernel_cache), 0, 0, NULL,
     "keep compiled GPU kernels in this folder, which is made if need be, for the next start"},
    {"--kernels", "DIR", APP_TEXT, AT(kernels), 0, 0, NULL,
     "files in this folder, such as rmsnorm.metal, replace Metal's kernels of that name, and again whenever they change"},
    {"--trunk", "T", APP_WORD, AT(trunk), 0, 0, "auto", "auto or bf16 or int8 or int4: precision of the matrices outside the experts"},
    {"--exact", NULL, APP_FLAG, AT(exact), 0, 0, NULL, "the reference arithmetic: bf16 trunk as stored, float32 activations and caches"},
    {"--chunk", "N", APP_COUNT, AT(chunk_rows), 0, 65536, "0",
     "prompt tokens computed at once; 0: chosen. On the CPU any value gives the same bits"},
};

static const app_option sampling_options[] = {
    {"-n", "N", APP_COUNT, AT(n), 0, 1e9, "until the model ends or the context is full", "new tokens at most"},
    {"--temp", "T", APP_NUMBER, AT(temperature), 0, 1e6, "1", "temperature; 0 takes the most likely token (greedy)"},
    {"--top-k", "K", APP_COUNT, AT(top_k), 0, 1e9, "0", "then keep the K most likely tokens; 0: off"},
    {"--top-p", "P", APP_NUMBER, AT(top_p), 0, 1, "0.95", "then keep the fewest whose probabilities reach P; 1: off, 0: the best only"},
    {"--min-p", "P", APP_NUMBER, AT(min_p), 0, 1, "0", "then drop what is less likely than P times the best; 0: off"},
    {"--seed", "S", APP_SEED, AT(seed), 0, 0, "taken from the clock", "of the draws; the same seed draws the same tokens"},
    {"--stop", "TEXT", APP_LIST, AT(stops), 0, 0, NULL, "end the answer before this text; may be given several times"},
};

static const app_option run_input[] = {
    {"-p", "TEXT", APP_TEXT, AT(prompt), 0, 0, NULL, "the prompt"},
    {"--prompt-file", "F", APP_TEXT, AT(prompt_file), 0, 0, NULL, "the prompt is this file; - for standard input"},
    {"--ids", "1,2,3", APP_TEXT, AT(ids), 0, 0, NULL, "the prompt as token ids; needs no tokenizer files"},
    {"--chat", NULL, APP_FLAG, AT(chat), 0, 0, NULL,
     "a conversation in K3's chat format; without a prompt, lines are read and answered in turn"},
    {"--system", "S", APP_TEXT, AT(system), 0, 0, NULL, "system message of the conversation"},
    {"--request", "F", APP_TEXT, AT(request), 0, 0, NULL,
     "a chat request: JSON with messages, tools, tool_choice, response_format, thinking, thinking_effort (docs/chat.md); other "
     "fields are ignored; - for standard input"},
    {"--no-think", NULL, APP_FLAG, AT(no_think), 0, 0, NULL, "answer without the thinking channel"},
    {"--effort", "E", APP_WORD, AT(effort), 0, 0, NULL, "low or high or max: how much to think"},
};
static const app_option chat_options[] = {
    {"--system", "S", APP_TEXT, AT(system), 0, 0, NULL, "system message of the conversation"},
    {"--no-think", NULL, APP_FLAG, AT(no_think), 0, 0, NULL, "answer without the thinking channel"},
    {"--effort", "E", APP_WORD, AT(effort), 0, 0, NULL, "low or high or max: how much to think"},
    {"--fold", NULL, APP_FLAG, AT(fold), 0, 0, NULL, "thinking is one line that counts; /think shows it"},
    {"--load", "FILE", APP_TEXT, AT(load), 0, 0, NULL, "go on with a conversation that /save wrote"},
    {"--stats", NULL, APP_FLAG, AT(stats), 0, 0, NULL, "time for each operation after each answer, on stderr"},
    {"--quiet", NULL, APP_FLAG, AT(quiet), 0, 0, NULL, "no plan, progress or thinking on stderr"},
};
static const app_option run_output[] = {
    {"--print-ids", NULL, APP_FLAG, AT(print_ids), 0, 0, NULL,
     "print the new token ids in one line, separated by commas, the one that ended the answer included, and nothing else"},
    {"--stats", NULL, APP_FLAG, AT(stats), 0, 0, NULL, "rates, time for each operation, and who computed the experts, on stderr"},
    {"--quiet", NULL, APP_FLAG, AT(quiet), 0, 0, NULL, "no plan, progress or thinking on stderr"},
};
static const app_option eval_input[] = {
    {"--ids", "1,2,3", APP_TEXT, AT(ids), 0, 0, NULL, "score these token ids"},
    {"--file", "F", APP_TEXT, AT(file), 0, 0, NULL, "score a text; or, if the name ends in .json, a list of ids or a list of lists of ids"},
    {"--tasks", "F", APP_TEXT, AT(tasks), 0, 0, NULL,
     "answer the prompts of a JSON file greedily and print the share that is right, by family"},
    {"-n", "N", APP_COUNT, AT(n), 1, 1e6, "2048", "with --tasks: new tokens at most for each answer"},
};
static const app_option eval_output[] = {
    {"--logits", "OUT.npy", APP_TEXT, AT(logits), 0, 0, NULL,
     "write the logits as float32 [tokens, vocabulary]; several sequences follow one another"},
    {"--show-failures", NULL, APP_FLAG, AT(show_failures), 0, 0, NULL, "with --tasks: each wrong answer on stderr"},
    {"--stats", NULL, APP_FLAG, AT(stats), 0, 0, NULL, "time for each operation, on stderr"},
    {"--quiet", NULL, APP_FLAG, AT(quiet), 0, 0, NULL, "no plan and progress on stderr"},
};
static const app_option bench_options[] = {
    {"--prompt", "LIST", APP_TEXT, AT(prompts), 0, 0, "32,128,512", "prefill of so many tokens each"},
    {"--context", "LIST", APP_TEXT, AT(contexts), 0, 0, "0,4096,32768",
     "decode after so many tokens each; what the model has no room for is left out"},
    {"-n", "N", APP_COUNT, AT(n), 1, 1e6, "32", "tokens of a decode"},
    {"--repeats", "N", APP_COUNT, AT(n_repeats), 1, 1000, "5", "runs of each; the medians are printed"},
    {"--limit", "S", APP_COUNT, AT(limit), 0, 1e6, "120", "a context that takes longer to reach, in seconds, is left out"},
    {"--json", NULL, APP_FLAG, AT(json), 0, 0, NULL, "one JSON object on stdout; docs/performance.md names its members"},
    {"--svg", "FILE", APP_TEXT, AT(svg), 0, 0, NULL, "write a plot of prefill and decode, with their ceilings"},
    {"--stats", NULL, APP_FLAG, AT(stats), 0, 0, NULL, "statistics of each row on stderr; a device times its operations only then"},
    {"--quiet", NULL, APP_FLAG, AT(quiet), 0, 0, NULL, "no plan and progress on stderr"},
};

#define COUNT(list) (sizeof(list) / sizeof *(list))
static const app_option pull_options[] = {
    {"--revision", "R", APP_TEXT, AT(revision), 0, 0, "main", "branch, tag or commit"},
    {"--jobs", "N", APP_COUNT, AT(jobs), 1, 64, "4", "files to fetch at once"},
    {"--token-file", "F", APP_TEXT, AT(token_file), 0, 0, NULL,
     "the token in this file is shown to the server of SOURCE, and to no other that it redirects to"},
    {"--retries", "N", APP_COUNT, AT(retries), 0, 1000, "10",
     "attempts after one that brought nothing new, ever longer apart, up to a minute"},
    {"--timeout", "S", APP_COUNT, AT(timeout), 1, 3600, "60", "seconds without a byte after which a connection is given up"},
    {"--quiet", NULL, APP_FLAG, AT(quiet), 0, 0, NULL, "no progress on stderr"},
};

static const app_option serve_options[] = {
    {"--host", "H", APP_TEXT, AT(host), 0, 0, "127.0.0.1", "address to listen on; 0.0.0.0 for every network this machine is in"},
    {"--port", "N", APP_COUNT, AT(port), 0, 65535, "8080", "port to listen on; 0: one that is free"},
    {"--api-key-file", "F", APP_TEXT, AT(api_key_file), 0, 0, NULL,
     "ask clients for one of the keys in this file, one a line; without it everybody who reaches the port may ask"},
    {"--allow-host", "LIST", APP_TEXT, AT(allow_hosts), 0, 0, NULL,
     "names under which clients reach this server, separated by commas, beside addresses and localhost; * for any"},
    {"--cors-origin", "LIST", APP_TEXT, AT(cors_origins), 0, 0, NULL,
     "web pages that may ask, by origin, such as https://chat.example.org, separated by commas; * for any"},
    {"--alias", "LIST", APP_TEXT, AT(aliases), 0, 0, NULL, "further names of the model, separated by commas"},
    {"--strict-model", NULL, APP_FLAG, AT(strict_model), 0, 0, NULL,
     "refuse names of models other than the folder's, those of --alias, gpt-* and claude-*"},
    {"--strict", NULL, APP_FLAG, AT(strict), 0, 0, NULL, "the fixed settings and limits of the vendor's own service"},
};
static const app_option serve_limits[] = {
    {"--ctx", "N", APP_COUNT, AT(context), 0, 1e9, "the model's", "tokens of a prompt and its answer together"},
    {"--parallel", "N", APP_COUNT, AT(parallel), 1, 4096, "16", "answers made at the same time"},
    {"--queue", "N", APP_COUNT, AT(queue), 0, 1e6, "64", "further requests that wait; those beyond are refused with 429"},
    {"--prefix-cache", "SIZE|FOLDER", APP_TEXT, AT(prefix_cache), 0, 0, "1G",
     "memory for conversations that nobody asks in at the moment, such as 512M; or a folder where they are kept over a restart too"},
    {"--quiet", NULL, APP_FLAG, AT(quiet), 0, 0, NULL, "no plan, progress or line for each request on stderr"},
};

static const app_option plan_options[] = {
    {"--json", NULL, APP_FLAG, AT(json), 0, 0, NULL, "one JSON object on stdout"},
};

static const app_option pack_options[] = {
    {"--trunk", "T", APP_WORD, AT(trunk), 0, 0, "int8", "bf16 or int8 or int4: precision of the matrices outside the experts, for good"},
    {"--quiet", NULL, APP_FLAG, AT(quiet), 0, 0, NULL, "no progress on stderr"},
};

static const app_theme sampling = {"Sampling, in this order", sampling_options, COUNT(sampling_options)};
static const app_theme engine = {"Engine", engine_options, COUNT(engine_options)};
static const app_theme run_in = {"Prompt", run_input, COUNT(run_input)};
static const app_theme chat = {"Conversation", chat_options, COUNT(chat_options)};
static const app_theme run_out = {"Output", run_output, COUNT(run_output)};
static const app_theme eval_in = {"What to score", eval_input, COUNT(eval_input)};
static const app_theme eval_out = {"Output", eval_output, COUNT(eval_output)};
static const app_theme bench = {"Measure", bench_options, COUNT(bench_options)};
static const app_theme plan = {"Output", plan_options, COUNT(plan_options)};
static const app_theme pack = {"Pack", pack_options, COUNT(pack_options)};
static const app_theme pull = {"Fetch", pull_options, COUNT(pull_options)};

static const app_theme serve = {"Server", serve_options, COUNT(serve_options)};
static const app_theme serve_limit = {"Limits", serve_limits, COUNT(serve_limits)};

static const app_theme *const run_themes[] = {&run_in, &sampling, &engine, &run_out};
static const app_theme *const chat_themes[] = {&chat, &sampling, &engine};
static const app_theme *const eval_themes[] = {&eval_in, &engine, &eval_out};
static const app_theme *const bench_themes[] = {&bench, &engine};
static const app_theme *const plan_themes[] = {&engine, &plan};
static const app_theme *const pack_themes[] = {&pack};
static const app_theme *const pull_themes[] = {&pull};
static const app_theme *const serve_themes[] = {&serve, &serve_limit, &engine};

const app_verb app_verbs[] = {
    {"chat", "MODEL [options]",
     "talk with the model\n\n"
     "Lines are read and answered in turn; Alt+Enter, or a backslash at the end, goes on in a further line, and what is\n"
     "pasted stays together. Ctrl-C stops an answer, a second one leaves; Ctrl-D ends the conversation. Answers go to\n"
     "stdout, thinking and figures to stderr. /help lists the commands: /system /think /save /load /stats /reset.",
     app_converse, chat_themes, COUNT(chat_themes), 1},
    {"run", "MODEL (-p TEXT | --prompt-file F | --ids 1,2,3 | --request F | --chat) [options]",
     "continue a text, or chat\n\nWithout --chat the prompt is continued as it stands. The text goes to stdout; thinking, progress and\n"
     "figures go to stderr. Ctrl-C stops an answer, a second one leaves; Ctrl-D ends a conversation.",
     app_run, run_themes, COUNT(run_themes), 1},
    {"serve", "MODEL [--host H] [--port N] [--api-key-file F] [options]",
     "answer clients over HTTP, with the APIs of OpenAI and Anthropic\n\n"
     "/v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/models, /health, /metrics (docs/server.md).\n"
     "Only this machine is listened to unless --host says otherwise. Ctrl-C ends what runs with an error, and leaves; a\n"
     "second one leaves at once.",
     app_serve, serve_themes, COUNT(serve_themes), 1},
    {"eval", "MODEL (--ids 1,2,3 | --file F | --tasks F) [options]",
     "score a text: logits, perplexity; or score answers to prompts\n\nPrints `perplexity X  nll Y  tokens N`: exp of Y, the mean of -ln p "
     "over "
     "the N tokens that\nhave one before them.",
     app_eval, eval_themes, COUNT(eval_themes), 1},
    {"bench", "MODEL [options]",
     "measure speed\n\nPrefill over the length of a prompt and decode over the context, bytes and multiply-adds of a token, where the\n"
     "time goes, and the share of what this machine's memory, arithmetic and disk can do, measured in the same run.\n"
     "The first run, which reads from disk what it needs, stands apart.",
     app_bench, bench_themes, COUNT(bench_themes), 1},
    {"devices", "", "list what can compute: GPUs by number and name, and the CPU", app_devices, NULL, 0, 0},
    {"inspect", "MODEL", "say what is in a model folder, and check all of it", app_inspect, NULL, 0, 1},
    {"plan", "MODEL [options]",
     "say how a model would lie in this machine's memory, and how fast it would be\n\n"
     "No weights are loaded. The rate of each drive is measured with a few hundred megabytes of the model's own files,\n"
     "unless --disk-rate gives it; that of memory is measured too. File systems are named, and it is said of network\n"
     "and shared ones, and of drives that are slow, that they may hold the model up. The speed expected is an upper\n"
     "bound; the last line says what it would be with more memory, faster drives, or faster memory.",
     app_plan, plan_themes, COUNT(plan_themes), 1},
    {"pack", "MODEL OUT [--trunk T]",
     "write a model again so that it starts in seconds\n\n"
     "OUT gets valid safetensors: the trunk as it is computed with, each expert in one piece at a multiple of 4096\n"
     "bytes, and the files beside the weights. All of it is compared with MODEL, which is only read. After Ctrl-C, a\n"
     "kill or a full disk the same command goes on; shards that are whole stay.",
     app_pack, pack_themes, COUNT(pack_themes), 2},
    {"pull", "SOURCE OUT [options]",
     "fetch a model into a folder\n\n"
     "SOURCE is the model's whole URL, http://HOST/OWNER/NAME, on a server with the hub's layout. Unfinished files\n"
     "are OUT/NAME.part; after Ctrl-C, a full disk or a lost connection the same command goes on. What is whole, by\n"
     "size and checksum, is not fetched again.",
     app_pull, pull_themes, COUNT(pull_themes), 2},
};
const size_t app_n_verbs = COUNT(app_verbs);
