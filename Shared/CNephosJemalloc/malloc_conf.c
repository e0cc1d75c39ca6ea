// Read by jemalloc when the process starts. What was freed goes back to the system after ten seconds, also from threads
// that allocate nothing any more, and counts no longer towards the limit of the memory.
const char *malloc_conf = "background_thread:true,retain:false";
