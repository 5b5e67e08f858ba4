/* A random tiny checkpoint with a tokenizer of single bytes: whatever it is asked, its greedy answer is small letters without end. */
#ifndef K3_TESTS_CHATTY_H
#define K3_TESTS_CHATTY_H

enum { CHATTY_VOCAB = 512, CHATTY_END = 258 }; /* 256 bytes, 256 special slots; <|end_of_msg|> */

/* A temporary folder; tiny_remove_folder ends it. */
char *chatty_folder(void);
/* Set-up of a group of tests: *state is such a folder. */
int chatty_setup(void **state);
int chatty_teardown(void **state);

#endif
