// A program that calls malloc of the C library beside its own heap; says so, waits for a line unless it is to be short.
package main

/*
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"os"
	"unsafe"
)

var kept []unsafe.Pointer

func main() {
	if len(os.Args) < 2 {
		fmt.Println("waiting")
		fmt.Scanln()
	}
	for i := 0; i < 1000; i++ {
		kept = append(kept, C.malloc(1024))
	}
	fmt.Println("done", len(kept))
	if len(os.Args) < 2 {
		fmt.Scanln()
	}
}
