// Data: written by scripts/search-kernels.
#pragma once

#ifndef MR_SMALL_STREAMS
#define MR_SMALL_STREAMS 4
#endif

#ifndef MR_SMALL_AHEAD
#define MR_SMALL_AHEAD 1024
#endif

#ifndef MR_NIBBLE_STREAMS
#define MR_NIBBLE_STREAMS 4
#endif

#ifndef MR_K_STREAMS
#define MR_K_STREAMS 2
#endif

#ifndef MR_K_MIN_STREAMS
#define MR_K_MIN_STREAMS 2
#endif

#ifndef MR_K_AHEAD
#define MR_K_AHEAD 2048
#endif

#ifndef MR_AHEAD_CACHE
#define MR_AHEAD_CACHE 2
#endif

#ifndef MR_PANEL_STRIPS
#define MR_PANEL_STRIPS 4
#endif

#ifndef MR_PANEL_GROUPS
#define MR_PANEL_GROUPS 24
#endif

#ifndef MR_PANEL_ROWS
#define MR_PANEL_ROWS 512
#endif

#ifndef MR_PIECES
#define MR_PIECES 16
#endif

#ifndef MR_AMX_GROUPS
#define MR_AMX_GROUPS 16
#endif
