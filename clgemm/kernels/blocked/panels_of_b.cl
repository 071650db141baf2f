// Parameters of pack/vector_panels.cl, which follows and defines pack_panels_b: panels of B of VECTORS * WIDTH
// columns. The work-group that packs a block reads it next, so it stays in a near cache.
#undef PANEL
#undef PIECE
#undef TURN
#undef WRITES
#undef OF
#define PANEL (VECTORS * WIDTH)
#define PIECE PIECE_B
#define TURN TURN_B
#define WRITES 0
#define OF(name) name##_b
#ifndef PIECE_B
#error "PIECE_B: PIECE of pack/vector_panels.cl for panels of B"
#endif
#ifndef TURN_B
#error "TURN_B: TURN of pack/vector_panels.cl for panels of B"
#endif
