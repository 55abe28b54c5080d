// A program that maps no libc: allocates from Go's own heap, says so, waits for a line unless it is to be short.
package main

import (
	"fmt"
	"os"
)

var kept [][]byte

func main() {
	if len(os.Args) < 2 {
		fmt.Println("waiting")
		fmt.Scanln()
	}
	for i := 0; i < 1000; i++ {
		kept = append(kept, make([]byte, 1024))
	}
	fmt.Println("done", len(kept))
	if len(os.Args) < 2 {
		fmt.Scanln()
	}
}
