//! Commands of the prompt.

use anyhow::{Context as _, bail};
use bson::{Bson, Document, doc};
use slate_client::{
    Client,
    protocol::{Doc, Find, IndexDefinition},
};

use crate::output::{Output, json_value};

/// Names and arguments, for help and completion.
pub(crate) const COMMANDS: [(&str, &str); 20] = [
    ("collections", "lists collections"),
    ("create", "COLLECTION [FIELD…]: creates a collection with indexes"),
    ("drop", "COLLECTION"),
    ("indexes", "COLLECTION: lists indexes, with the progress of builds"),
    (
        "index",
        "COLLECTION [unique] [sparse] [ttl=SECONDS] FIELD…: creates an index; -FIELD descends, several FIELDs are compound",
    ),
    ("unindex", "COLLECTION NAME: drops an index"),
    ("insert", "COLLECTION DOCUMENT"),
    ("upsert", "COLLECTION DOCUMENT: inserts, or replaces the document with the same _id"),
    ("merge", "COLLECTION DOCUMENT: inserts, or sets the fields of the document with the same _id"),
    ("find", "COLLECTION [FILTER [SORT [TAKE [PROJECTION]]]]"),
    ("get", "COLLECTION ID"),
    ("update", "COLLECTION FILTER UPDATE: updates every match"),
    ("replace", "COLLECTION FILTER DOCUMENT"),
    ("delete", "COLLECTION FILTER: deletes every match"),
    ("count", "COLLECTION [FILTER]"),
    ("distinct", "COLLECTION FIELD [FILTER]"),
    ("explain", "COLLECTION [FILTER [SORT [TAKE]]]: shows the plan, and keys and documents examined"),
    ("ping", "shows the server's boot id and store"),
    (
        "help",
        "shows this; documents are extended JSON: find accounts {\"score\": {\"$gt\": 5}} {\"score\": -1} 10",
    ),
    ("exit", "ends"),
];

/// Splits a line into words. A word that begins with a bracket or a quotation mark goes on until it is closed.
pub(crate) fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for character in line.chars() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '{' | '[' if !quoted => depth += 1,
            '}' | ']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if character.is_whitespace() && depth == 0 && !quoted {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
        } else {
            word.push(character);
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Runs one command.
pub(crate) async fn run(client: &Client, words: &[String]) -> anyhow::Result<Output> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let text = |text: &str| Ok(Output::Text(text.to_owned()));
    match words.as_slice() {
        ["help"] => Ok(Output::Text(help())),
        ["collections"] => {
            let collections = client.collections().await?;
            let describe = |info: slate_client::protocol::CollectionInfo| {
                doc! { "name": info.name, "documents": info.documents as i64, "indexes": i64::from(info.indexes) }
            };
            Ok(Output::Documents(collections.into_iter().map(describe).collect()))
        }
        ["create", collection, fields @ ..] => {
            client
                .create_collection(
                    collection,
                    fields.iter().map(|field| IndexDefinition::on(field)).collect(),
                )
                .await?;
            text("created")
        }
        ["drop", collection] => {
            client.drop_collection(collection).await?;
            text("dropped")
        }
        ["indexes", collection] => {
            let describe = |info: slate_client::protocol::IndexInfo| {
                doc! {
                    "name": info.definition.name,
                    "fields": info.definition.fields.join(", "),
                    "unique": info.definition.unique,
                    "ttl": info.definition.expire_after_seconds.map_or(Bson::Null, |seconds| Bson::Int64(seconds.into())),
                    "ready": info.ready,
                    "indexed": info.error.unwrap_or_else(|| format!("{}/{}", info.indexed, info.total)),
                }
            };
            Ok(Output::Documents(client.indexes(collection).await?.into_iter().map(describe).collect()))
        }
        ["index", collection, options_and_fields @ ..] if !options_and_fields.is_empty() => {
            client.create_index(collection, index_definition(options_and_fields)?, false).await?;
            text("indexed")
        }
        ["unindex", collection, name] => {
            client.drop_index(collection, name).await?;
            text("dropped")
        }
        ["insert", collection, document] => {
            let id = client.insert(collection, &parse(document)?).await?;
            Ok(Output::Text(format!("inserted {}", json_value(&id))))
        }
        ["upsert", collection, document] => {
            let (inserted, updated) = client.upsert_many(collection, &[parse(document)?]).await?;
            Ok(Output::Text(format!("inserted {inserted}, replaced {updated}")))
        }
        ["merge", collection, document] => {
            let (inserted, updated) = client.merge_many(collection, &[parse(document)?]).await?;
            Ok(Output::Text(format!("inserted {inserted}, merged {updated}")))
        }
        ["find", collection, rest @ ..] if rest.len() <= 4 => {
            Ok(Output::Documents(client.find_with(find(collection, rest)?).await?))
        }
        ["get", collection, id] => {
            let found = client.find_by_id(collection, parse_value(id)).await?;
            Ok(Output::Documents(found.into_iter().collect()))
        }
        ["update", collection, filter, update] => {
            let updated = client.update_many(collection, &parse(filter)?, &parse(update)?).await?;
            Ok(Output::Text(format!("matched {}, modified {}", updated.matched, updated.modified)))
        }
        ["replace", collection, filter, document] => {
            let updated = client.replace_one(collection, &parse(filter)?, &parse(document)?, false).await?;
            Ok(Output::Text(format!("replaced {}", updated.matched)))
        }
        ["delete", collection, filter] => {
            Ok(Output::Text(format!("deleted {}", client.delete_many(collection, &parse(filter)?).await?)))
        }
        ["count", collection, rest @ ..] if rest.len() <= 1 => {
            let filter = rest.first().map_or_else(|| Ok(Document::new()), |filter| parse(filter))?;
            Ok(Output::Text(client.count(collection, &filter).await?.to_string()))
        }
        ["distinct", collection, field, rest @ ..] if rest.len() <= 1 => {
            let filter = rest.first().map_or_else(|| Ok(Document::new()), |filter| parse(filter))?;
            let values = client.distinct(collection, field, &filter).await?;
            Ok(Output::Documents(values.into_iter().map(|value| doc! { *field: value }).collect()))
        }
        ["explain", collection, rest @ ..] if rest.len() <= 3 => {
            let explanation = client.explain(find(collection, rest)?).await?;
            let explanation = Bson::Document(explanation).into_relaxed_extjson();
            Ok(Output::Text(serde_json::to_string_pretty(&explanation)?))
        }
        ["ping"] => {
            let (boot_id, store) = client.hello().await?;
            Ok(Output::Text(format!("boot id {boot_id}, store {store}")))
        }
        [name, ..] => match COMMANDS.iter().find(|(command, _)| command == name) {
            Some((command, arguments)) => bail!("usage: {command} {arguments}"),
            None => bail!("there is no command {name:?}; try help"),
        },
        [] => text(""),
    }
}

/// Parses options and fields of an index.
fn index_definition(words: &[&str]) -> anyhow::Result<IndexDefinition> {
    let mut definition = IndexDefinition::default();
    for word in words {
        match word.strip_prefix("ttl=") {
            _ if !definition.fields.is_empty() => definition.fields.push((*word).to_owned()),
            Some(seconds) => {
                let seconds = seconds.parse().context("ttl= takes a number of seconds")?;
                definition.expire_after_seconds = Some(seconds);
            }
            None if *word == "unique" => definition.unique = true,
            None if *word == "sparse" => definition.sparse = true,
            None => definition.fields.push((*word).to_owned()),
        }
    }
    if definition.fields.is_empty() {
        bail!("an index needs a field");
    }
    Ok(definition)
}

fn find(collection: &str, rest: &[&str]) -> anyhow::Result<Find> {
    let part = |position: usize| -> anyhow::Result<Doc> {
        Ok(match rest.get(position) {
            Some(text) => Doc::new(&parse(text)?)?,
            None => Doc::default(),
        })
    };
    let take = rest.get(2).map(|take| take.parse().context("TAKE must be a number")).transpose()?;
    Ok(Find {
        collection: collection.to_owned(),
        filter: part(0)?,
        sort: part(1)?,
        take,
        projection: part(3)?,
        ..Find::default()
    })
}

/// Parses extended JSON.
pub(crate) fn parse(text: &str) -> anyhow::Result<Document> {
    // Read directly, without a JSON value between, so that fields keep their order.
    serde_json::from_str(text).with_context(|| format!("not a document in JSON: {text}"))
}

/// Parses an `_id`: JSON, an ObjectId in hexadecimal, or else text.
fn parse_value(text: &str) -> Bson {
    if let Ok(id) = bson::oid::ObjectId::parse_str(text) {
        return Bson::ObjectId(id);
    }
    serde_json::from_str(text).unwrap_or_else(|_| Bson::String(text.to_owned()))
}

fn help() -> String {
    COMMANDS.iter().map(|(name, arguments)| format!("{name:<12} {arguments}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_outside_brackets_only() {
        let words = split(r#"find accounts {"a": "x } y", "b": [1, 2]} {"a": 1} 5"#);
        assert_eq!(words, ["find", "accounts", r#"{"a": "x } y", "b": [1, 2]}"#, r#"{"a": 1}"#, "5"]);
        assert_eq!(split(r#"get c "two \"words\"" "#), ["get", "c", r#""two \"words\"""#]);
    }

    #[test]
    fn index_options_come_before_fields() {
        let definition = index_definition(&["unique", "ttl=60", "at", "-sparse"]).expect("a definition");
        assert!(definition.unique && !definition.sparse);
        assert_eq!(definition.expire_after_seconds, Some(60));
        assert_eq!(definition.fields, ["at", "-sparse"]);
        assert!(index_definition(&["unique"]).is_err() && index_definition(&["ttl=soon", "at"]).is_err());
    }

    #[test]
    fn ids_are_read_as_what_they_look_like() {
        assert_eq!(parse_value("7"), Bson::Int32(7));
        assert_eq!(parse_value("seven"), Bson::String("seven".to_owned()));
        assert_eq!(parse_value("\"two words\""), Bson::String("two words".to_owned()));
        assert!(matches!(parse_value("65f0c0ffee65f0c0ffee65f0"), Bson::ObjectId(_)));
        assert!(parse("[1]").is_err() && parse("{").is_err());
    }
}
