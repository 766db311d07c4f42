// A rank alone whose error handler throws: the exception passes through MPI's own function. Each line of its input makes
// it call that function with a root that is no rank.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>
#include <stdexcept>

static void handle(MPI_Comm *, int *, ...)
{
	throw std::runtime_error("an error of MPI");
}

int main(int argc, char **argv)
{
	MPI_Errhandler handler;
	char line[64];
	int caught = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_create_errhandler(handle, &handler);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		float value = 0;
		try {
			MPI_Bcast(&value, 1, MPI_FLOAT, 77, MPI_COMM_WORLD);
		} catch (const std::runtime_error &) {
			caught++;
		}
		printf("caught %d\n", caught);
		fflush(stdout);
	}
	MPI_Finalize();
}
