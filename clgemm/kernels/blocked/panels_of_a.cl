// Parameters of pack/vector_panels.cl, which follows and defines pack_panels_a: panels of A of WORK_M rows.
// Other work-groups read them, so they are written as far away.
#undef PANEL
#undef PIECE
#undef TURN
#undef WRITES
#undef OF
#define PANEL WORK_M
#define PIECE PIECE_A
#define TURN TURN_A
#define WRITES (PREFETCH > 0)
#define OF(name) name##_a
#ifndef PIECE_A
#error "PIECE_A: PIECE of pack/vector_panels.cl for panels of A"
#endif
#ifndef TURN_A
#error "TURN_A: TURN of pack/vector_panels.cl for panels of A"
#endif
