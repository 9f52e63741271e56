// The part of Kubernetes' API server that serves custom resources, by itself: their definitions, validation, watches,
// server-side apply and status, in etcd. It lets everybody do everything, and has no objects of Kubernetes' own.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
)

func main() {
	o := options.NewCustomResourceDefinitionsServerOptions(os.Stdout, os.Stderr)
	o.RecommendedOptions.Authentication = nil
	o.RecommendedOptions.Authorization = nil
	o.RecommendedOptions.Admission = nil
	command := &cobra.Command{
		Use: "resource-server",
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return o.ServerRunOptions.ComponentGlobalsRegistry.Set()
		},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Complete(); err != nil {
				return err
			}
			return server.Run(c.Context(), o)
		},
	}
	command.SetContext(genericapiserver.SetupSignalContext())
	o.AddFlags(command.Flags())
	os.Exit(cli.Run(command))
}
