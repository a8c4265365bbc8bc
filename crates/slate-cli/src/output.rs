//! Results as tables or JSON.

use bson::{Bson, Document};
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};

/// Form of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Columns for people.
    Table,
    /// One JSON document per line.
    Json,
}

/// Result of a command.
#[derive(Debug)]
pub(crate) enum Output {
    Documents(Vec<Document>),
    Text(String),
}

pub(crate) fn render(output: &Output, format: Format) -> String {
    match (output, format) {
        (Output::Text(text), _) => format!("{text}\n"),
        (Output::Documents(documents), Format::Json) => {
            documents.iter().map(|document| json(document) + "\n").collect()
        }
        (Output::Documents(documents), Format::Table) => table(documents),
    }
}

/// Writes a document as relaxed extended JSON, which keeps BSON's types and the order of fields.
pub(crate) fn json(document: &Document) -> String {
    let field = |(name, value): (&String, &Bson)| {
        format!("{}:{}", serde_json::Value::from(name.as_str()), json_value(value))
    };
    format!("{{{}}}", document.iter().map(field).collect::<Vec<_>>().join(","))
}

/// Writes a value as relaxed extended JSON.
pub(crate) fn json_value(value: &Bson) -> String {
    match value {
        Bson::Document(document) => json(document),
        Bson::Array(values) => format!("[{}]", values.iter().map(json_value).collect::<Vec<_>>().join(",")),
        other => other.clone().into_relaxed_extjson().to_string(),
    }
}

fn table(documents: &[Document]) -> String {
    let mut columns: Vec<&String> = Vec::new();
    for name in documents.iter().flat_map(Document::keys) {
        if !columns.contains(&name) {
            columns.push(name);
        }
    }
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(&columns);
    for document in documents {
        let cell = |name: &&String| match document.get(*name) {
            None => String::new(),
            Some(Bson::String(text)) => text.clone(),
            Some(Bson::ObjectId(id)) => id.to_hex(),
            Some(value) => json_value(value),
        };
        table.add_row(columns.iter().map(cell).collect::<Vec<_>>());
    }
    let count = documents.len();
    let plural = if count == 1 { "document" } else { "documents" };
    if documents.is_empty() { "no documents\n".to_owned() } else { format!("{table}\n{count} {plural}\n") }
}
