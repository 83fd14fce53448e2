package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/posttrain/posttrain/internal/run"
)

func newMan(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Hidden: true, Short: "Write a manual page of every command into a folder",
		Long: "Write a manual page of every command into a folder, which is made if it is not there. Pages of the same\n" +
			"names are replaced. The date is today's, or that of SOURCE_DATE_EPOCH (seconds since 1970).",
		Example: "  posttrain man man1 && man -l man1/posttrain-mappo.1",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("%d arguments: want one, the folder for the pages", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return writeManual(s.out, cmd.Root(), args[0]) },
	}
}

func writeManual(out io.Writer, root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("folder %s: %w", dir, run.Cause(err))
	}
	header := &doc.GenManHeader{Section: "1", Source: "posttrain " + version(), Manual: "posttrain"}
	if os.Getenv("SOURCE_DATE_EPOCH") == "" {
		now := time.Now()
		header.Date = &now
	}
	root.DisableAutoGenTag = true
	if err := doc.GenManTree(root, header, dir); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "Pages: %s\n", filepath.Join(dir, "posttrain*.1"))
	return err
}
