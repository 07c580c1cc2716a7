// Runs one act of iceberg-go on a table: engine ACT NAMESPACE TABLE [SNAPSHOT]. Prints rows as JSON, one a line.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/rest"
	_ "github.com/apache/iceberg-go/io/gocloud"
	"github.com/apache/iceberg-go/table"
	"github.com/apache/iceberg-go/view"
)

type row struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

var ctx = context.Background()

func connect(uri, credential string) (*rest.Catalog, error) {
	tokens, err := url.Parse(uri + "/v1/oauth/tokens")
	if err != nil {
		return nil, err
	}
	return rest.NewCatalog(ctx, "lake", uri, rest.WithCredential(credential), rest.WithAuthURI(tokens))
}

func main() {
	lake, err := connect(os.Getenv("CATALOG_URI"), os.Getenv("CATALOG_CREDENTIAL"))
	if err == nil {
		err = act(lake, os.Args[1], table.Identifier{os.Args[2], os.Args[3]}, os.Args[4:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func act(lake *rest.Catalog, name string, ident table.Identifier, more []string) error {
	if version, ok := map[string]string{"create": "2", "version_3": "3"}[name]; ok {
		return create(lake, ident, version, name == "version_3")
	}
	loaded, err := lake.LoadTable(ctx, ident)
	if err != nil {
		return err
	}
	switch name {
	case "read":
		return show(loaded.Scan())
	case "time_travel":
		snapshot, err := strconv.ParseInt(more[0], 10, 64)
		if err != nil {
			return err
		}
		return show(loaded.Scan(table.WithSnapshotID(snapshot)))
	case "row_ids":
		return show(loaded.Scan(table.WithRowLineage()))
	case "variant":
		return show(loaded.Scan(table.WithSelectedFields("v"), table.WithLimit(1)))
	case "append":
		return appendRows(loaded, row{5, "Eve"})
	case "overwrite":
		batch := rows(loaded, row{7, "Gus"})
		_, err = loaded.Overwrite(ctx, batch, nil)
		return err
	case "refs":
		return createRefs(lake, loaded)
	case "views":
		return createView(lake, ident)
	}
	return change(loaded, name)
}

func change(loaded *table.Table, name string) error {
	transaction := loaded.NewTransaction()
	var err error
	switch name {
	case "delete":
		if err = transaction.SetProperties(iceberg.Properties{"write.delete.mode": "merge-on-read"}); err == nil {
			err = transaction.Delete(ctx, iceberg.EqualTo(iceberg.Reference("id"), int64(2)), nil)
		}
	case "schema":
		added := transaction.UpdateSchema(true, false)
		added.AddColumn([]string{"legs"}, iceberg.PrimitiveTypes.Int32, "", false, nil)
		err = added.RenameColumn([]string{"name"}, "called").Commit()
	case "partitions":
		err = transaction.UpdateSpec(true).AddField("id", iceberg.BucketTransform{NumBuckets: 4}, "id_bucket").Commit()
	default:
		err = fmt.Errorf("no act %s", name)
	}
	if err != nil {
		return err
	}
	changed, err := transaction.Commit(ctx)
	if err != nil || name == "delete" {
		return err
	}
	return appendRows(changed, row{5, "Eve"})
}

func create(lake *rest.Catalog, ident table.Identifier, version string, filled bool) error {
	schema := iceberg.NewSchema(0,
		iceberg.NestedField{ID: 1, Name: "id", Type: iceberg.PrimitiveTypes.Int64},
		iceberg.NestedField{ID: 2, Name: "name", Type: iceberg.PrimitiveTypes.String})
	made, err := lake.CreateTable(ctx, ident, schema,
		catalog.WithProperties(iceberg.Properties{"format-version": version}))
	if err != nil || !filled {
		return err
	}
	return appendRows(made, row{5, "Eve"})
}

func createView(lake *rest.Catalog, ident table.Identifier) error {
	name := table.Identifier{ident[0], "v_" + ident[1]}
	sql := fmt.Sprintf("SELECT id FROM %s WHERE id < 3", ident[1])
	version, err := view.NewVersionFromSQL(1, 0, sql, table.Identifier{ident[0]})
	if err != nil {
		return err
	}
	schema := iceberg.NewSchema(0, iceberg.NestedField{ID: 1, Name: "id", Type: iceberg.PrimitiveTypes.Int64})
	_, err = lake.CreateView(ctx, name, version, schema)
	return err
}

func createRefs(lake *rest.Catalog, loaded *table.Table) error {
	head := loaded.CurrentSnapshot().SnapshotID
	_, _, err := lake.CommitTable(ctx, loaded.Identifier(),
		[]table.Requirement{table.AssertTableUUID(loaded.Metadata().TableUUID())},
		[]table.Update{
			table.NewSetSnapshotRefUpdate("side", head, table.BranchRef, 0, 0, 0),
			table.NewSetSnapshotRefUpdate("first", head, table.TagRef, 0, 0, 0),
		})
	return err
}

// rows gives columns beyond the two the value 2.
func rows(loaded *table.Table, given ...row) array.RecordReader {
	schema, err := table.SchemaToArrowSchema(loaded.Schema(), nil, false, false)
	if err != nil {
		panic(err)
	}
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for _, one := range given {
		builder.Field(0).(*array.Int64Builder).Append(one.ID)
		builder.Field(1).(*array.StringBuilder).Append(one.Name)
		if len(builder.Fields()) > 2 {
			builder.Field(2).(*array.Int32Builder).Append(2)
		}
	}
	reader, err := array.NewRecordReader(schema, []arrow.RecordBatch{builder.NewRecordBatch()})
	if err != nil {
		panic(err)
	}
	return reader
}

func appendRows(loaded *table.Table, given ...row) error {
	_, err := loaded.Append(ctx, rows(loaded, given...), nil)
	return err
}

func show(scan *table.Scan) error {
	_, batches, err := scan.ToArrowRecords(ctx)
	if err != nil {
		return err
	}
	for batch, err := range batches {
		if err != nil {
			return err
		}
		text, err := batch.MarshalJSON()
		if err != nil {
			return err
		}
		var found []map[string]any
		if err := json.Unmarshal(text, &found); err != nil {
			return err
		}
		for _, one := range found {
			line, _ := json.Marshal(one)
			fmt.Println(string(line))
		}
	}
	return nil
}
