/* The manual page and the shells' completions, written from the tables of verbs. */
#ifndef K3_APPS_MANUAL_H
#define K3_APPS_MANUAL_H

/* Prints `topic`: man (a page in the man macros), bash, zsh or fish. 0 if it is none of these. */
int app_manual(const char *topic);

#endif
