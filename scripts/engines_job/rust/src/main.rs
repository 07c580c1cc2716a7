//! Runs one act of iceberg-rust on a table: engine ACT NAMESPACE TABLE [SNAPSHOT]. Prints rows as JSON, one a line.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_cast::display::array_value_to_string;
use futures::TryStreamExt;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{DataFileFormat, FormatVersion, NestedField, PrimitiveType, Schema, Type};
use iceberg::table::Table;
use iceberg::transaction::{ApplyTransactionAction, Transaction};
use iceberg::writer::base_writer::data_file_writer::DataFileWriterBuilder;
use iceberg::writer::file_writer::ParquetWriterBuilder;
use iceberg::writer::file_writer::location_generator::{
    DefaultFileNameGenerator, DefaultLocationGenerator,
};
use iceberg::writer::file_writer::rolling_writer::RollingFileWriterBuilder;
use iceberg::writer::{IcebergWriter, IcebergWriterBuilder};
use iceberg::{Catalog, CatalogBuilder, TableCreation, TableIdent};
use iceberg_catalog_rest::{RestCatalog, RestCatalogBuilder};
use iceberg_storage_opendal::OpenDalStorageFactory;
use parquet::file::properties::WriterProperties;

type Done<T> = Result<T, Box<dyn Error>>;

async fn connect(uri: &str, credential: &str) -> iceberg::Result<RestCatalog> {
    let properties = HashMap::from([
        ("uri".to_string(), uri.to_string()),
        ("credential".to_string(), credential.to_string()),
        ("oauth2-server-uri".to_string(), format!("{uri}/v1/oauth/tokens")),
        ("header.X-Iceberg-Access-Delegation".to_string(), "vended-credentials".to_string()),
    ]);
    RestCatalogBuilder::default()
        .with_storage_factory(Arc::new(OpenDalStorageFactory::S3 { customized_credential_load: None }))
        .load("lake", properties)
        .await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Done<()> {
    let arguments: Vec<String> = env::args().collect();
    let lake = connect(&env::var("CATALOG_URI")?, &env::var("CATALOG_CREDENTIAL")?).await?;
    let ident = TableIdent::from_strs([&arguments[2], &arguments[3]])?;
    match arguments[1].as_str() {
        "create" => create(&lake, &ident, FormatVersion::V2).await,
        "version_3" => {
            create(&lake, &ident, FormatVersion::V3).await?;
            append(&lake, &ident).await
        }
        "read" => show(lake.load_table(&ident).await?, None, &["id", "name"]).await,
        "time_travel" => show(lake.load_table(&ident).await?, Some(arguments[4].parse()?), &["id", "name"]).await,
        "row_ids" => show(lake.load_table(&ident).await?, None, &["id", "_row_id"]).await,
        "append" => append(&lake, &ident).await,
        other => Err(format!("no act {other}").into()),
    }
}

async fn create(lake: &RestCatalog, ident: &TableIdent, version: FormatVersion) -> Done<()> {
    let schema = Schema::builder()
        .with_fields(vec![
            NestedField::optional(1, "id", Type::Primitive(PrimitiveType::Long)).into(),
            NestedField::optional(2, "name", Type::Primitive(PrimitiveType::String)).into(),
        ])
        .build()?;
    let number = if version == FormatVersion::V3 { "3" } else { "2" };
    let creation = TableCreation::builder()
        .name(ident.name().to_string())
        .schema(schema)
        .properties(HashMap::from([("format-version".to_string(), number.to_string())]))
        .build();
    lake.create_table(ident.namespace(), creation).await?;
    Ok(())
}

/// Append one row. The table is loaded again, as only that brings keys.
async fn append(lake: &RestCatalog, ident: &TableIdent) -> Done<()> {
    let table = lake.load_table(ident).await?;
    let schema = table.metadata().current_schema().clone();
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(vec![5])), Arc::new(StringArray::from(vec!["Eve"]))];
    let batch = RecordBatch::try_new(Arc::new(schema_to_arrow_schema(&schema)?), columns)?;
    let files = RollingFileWriterBuilder::new_with_default_file_size(
        ParquetWriterBuilder::new(WriterProperties::default(), schema),
        table.file_io().clone(),
        DefaultLocationGenerator::new(table.metadata())?,
        DefaultFileNameGenerator::new(format!("{}", std::process::id()), None, DataFileFormat::Parquet),
    );
    let mut writer = DataFileWriterBuilder::new(files).build(None).await?;
    writer.write(batch).await?;
    let written = writer.close().await?;
    let transaction = Transaction::new(&table);
    let appended = transaction.fast_append().add_data_files(written).apply(transaction)?;
    appended.commit(lake).await?;
    Ok(())
}

async fn show(table: Table, snapshot: Option<i64>, columns: &[&str]) -> Done<()> {
    let mut scan = table.scan().select(columns);
    if let Some(id) = snapshot {
        scan = scan.snapshot_id(id);
    }
    let batches: Vec<RecordBatch> = scan.build()?.to_arrow().await?.try_collect().await?;
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let values: Vec<serde_json::Value> = batch
                .columns()
                .iter()
                .map(|column| {
                    let text = array_value_to_string(column, row)?;
                    let number = if column.data_type().is_integer() { text.parse::<i64>().ok() } else { None };
                    Ok(number.map_or_else(|| text.clone().into(), Into::into))
                })
                .collect::<Done<_>>()?;
            println!("{}", serde_json::Value::Array(values));
        }
    }
    Ok(())
}
