/* modes.h - the modes of the program `workload`, each in the file of its theme. argv[0] is the mode. */
#ifndef MODES_H
#define MODES_H

int mode_counts(int argc, char **argv);   /* basics.c */
int mode_clock(int argc, char **argv);
int mode_windows(int argc, char **argv);
int mode_cycles(int argc, char **argv);   /* cycles.c */
int mode_threads(int argc, char **argv);  /* threads.c */
int mode_graphs(int argc, char **argv);   /* graphs.c */
int mode_captures(int argc, char **argv);
int mode_clients(int argc, char **argv);  /* clients.c */
int mode_overhead(int argc, char **argv); /* costs.c */
int mode_rate(int argc, char **argv);
int mode_long(int argc, char **argv);
int mode_load(int argc, char **argv);

#endif
