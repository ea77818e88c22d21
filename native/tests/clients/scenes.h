#ifndef SCENES_H
#define SCENES_H

void work(char **arguments);
void graph(char **arguments);
void errors(char **arguments);
void many(char **arguments);
void forks(char **arguments);
void launches(char **arguments);
void transfers(char **arguments);
void hang(char **arguments);
void leaves(char **arguments);
void resets(char **arguments);
void streams(char **arguments);
void inits(char **arguments);
void threads(char **arguments);
void drivers(char **arguments);

#endif
