// kube-router, whose firewall is what enforces network policies on a node of the tests.
package main

import (
	"fmt"
	"os"

	"github.com/cloudnativelabs/kube-router/v2/pkg/cmd"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/spf13/pflag"
)

func run() error {
	config := options.NewKubeRouterConfig()
	config.AddFlags(pflag.CommandLine)
	pflag.Parse()
	router, err := cmd.NewKubeRouterDefault(config)
	if err != nil {
		return err
	}
	return router.Run()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
