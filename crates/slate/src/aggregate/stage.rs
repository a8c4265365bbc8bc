//! Stages of a pipeline.

use std::time::Instant;

use bson::{Bson, Document, RawDocumentBuf};

use super::{
    budget::{Budget, check_document_len},
    count_document,
    expression::{Expression, field, truthy},
    group::Group,
};
use crate::{
    engine::{Engine, raw},
    error::{Error, Result},
    filter::Filter,
    filter_integer,
    path::Path,
    projection::Projection,
    query::Query,
    sort::Sort,
    update::Update,
};

/// Where stages find the documents of other collections, and the time limit that they share.
pub(super) struct Source<'a> {
    pub(super) engine: &'a Engine,
    /// Prefix of collections that `$lookup` names.
    pub(super) database: &'a str,
    pub(super) deadline: Option<Instant>,
}

/// A parsed stage.
#[derive(Debug, Clone)]
#[allow(private_interfaces, reason = "stages are built by parsing and run by the pipeline")]
pub enum Stage {
    /// `$match`
    Match(Filter),
    /// `$sort`
    Sort(Sort),
    /// `$skip`
    Skip(usize),
    /// `$limit`
    Limit(usize),
    /// `$project` of stored fields only
    Project(Projection),
    /// `$addFields`, `$set`, and a `$project` that computes
    Compute {
        /// Fields kept besides the computed ones; `None` keeps all.
        projection: Option<Projection>,
        /// Computed fields.
        fields: Vec<(String, Expression)>,
    },
    /// `$unset`
    Unset(Update),
    /// `$replaceRoot`, `$replaceWith`
    ReplaceRoot(Expression),
    /// `$group`
    Group(Group),
    /// `$unwind`
    Unwind {
        /// Path of the array.
        path: Vec<String>,
        /// Keep documents without elements.
        preserve: bool,
        /// Field for the element's position.
        index: Option<String>,
    },
    /// `$count`
    Count(String),
    /// `$lookup` by equality
    Lookup {
        /// Collection, without its database.
        from: String,
        /// Path in this collection.
        local: Vec<String>,
        /// Path in the other collection.
        foreign: String,
        /// Field for the matches.
        target: String,
    },
}

impl Stage {
    pub(super) fn parse(document: &Document) -> Result<Self> {
        let one = document.iter().next().filter(|_| document.len() == 1);
        let Some((name, argument)) = one else {
            return Err(Error::invalid(
                "A pipeline stage specification object must contain exactly one field.",
            ));
        };
        let object =
            || argument.as_document().ok_or_else(|| Error::invalid(format!("{name} needs a document")));
        let size = || {
            let size = filter_integer(argument).and_then(|size| usize::try_from(size).ok());
            size.ok_or_else(|| Error::invalid(format!("{name} needs a non-negative integer")))
        };
        Ok(match name.as_str() {
            "$match" => Self::Match(Filter::parse(object()?)?),
            "$sort" => Self::Sort(Sort::parse(object()?)?),
            "$skip" => Self::Skip(size()?),
            "$limit" => Self::Limit(size()?),
            "$project" => parse_project(object()?)?,
            "$addFields" | "$set" => {
                Self::Compute { projection: None, fields: computed(flatten(object()?).iter())? }
            }
            "$unset" => parse_unset(argument)?,
            "$replaceRoot" => Self::ReplaceRoot(Expression::parse(
                object()?.get("newRoot").ok_or_else(|| Error::invalid("$replaceRoot needs newRoot"))?,
            )?),
            "$replaceWith" => Self::ReplaceRoot(Expression::parse(argument)?),
            "$group" => Self::Group(Group::parse(object()?)?),
            "$unwind" => parse_unwind(argument)?,
            "$count" => match argument.as_str() {
                Some(field) if !field.is_empty() && !field.starts_with('$') && !field.contains('.') => {
                    Self::Count(field.to_owned())
                }
                _ => return Err(Error::invalid("the count field must be a non-empty string")),
            },
            "$lookup" => parse_lookup(object()?)?,
            _ => return Err(Error::invalid(format!("Unrecognized pipeline stage name: '{name}'"))),
        })
    }

    pub(super) fn apply(&self, documents: Vec<Document>, source: &Source<'_>) -> Result<Vec<Document>> {
        let budget = &mut Budget::new(source.deadline)?;
        match self {
            Self::Match(filter) => {
                let projection = |document: Document| match raw(&document) {
                    Ok(raw) if filter.matches(&raw) => Some(Ok(document)),
                    Ok(_) => None,
                    Err(error) => Some(Err(error)),
                };
                documents.into_iter().filter_map(projection).collect()
            }
            Self::Sort(sort) => {
                let keyed = documents.into_iter().map(|document| Ok((sort.key(&raw(&document)?), document)));
                let mut keyed = keyed.collect::<Result<Vec<_>>>()?;
                keyed.sort_by(|(left, _), (right, _)| left.cmp(right));
                Ok(keyed.into_iter().map(|(_, document)| document).collect())
            }
            Self::Skip(skip) => Ok(documents.into_iter().skip(*skip).collect()),
            Self::Limit(limit) => Ok(documents.into_iter().take(*limit).collect()),
            Self::Project(projection) => {
                documents.iter().map(|document| project(projection, document)).collect()
            }
            Self::Compute { projection, fields } => documents
                .into_iter()
                .map(|document| {
                    let mut made = match projection {
                        Some(projection) => project(projection, &document)?,
                        None => document.clone(),
                    };
                    for (path, expression) in fields {
                        if let Some(value) = expression.value(&document)? {
                            set_computed(&mut made, path, value);
                        }
                    }
                    budget.charge(&made)?;
                    Ok(made)
                })
                .collect(),
            Self::Unset(update) => documents
                .into_iter()
                .map(|mut document| {
                    update.apply(&mut document, false)?;
                    Ok(document)
                })
                .collect(),
            Self::ReplaceRoot(expression) => documents
                .iter()
                .map(|document| match expression.evaluate(document)? {
                    Bson::Document(root) => {
                        budget.charge(&root)?;
                        Ok(root)
                    }
                    _ => Err(Error::invalid("'newRoot' expression must evaluate to an object")),
                })
                .collect(),
            Self::Group(group) => group.apply(documents, budget),
            Self::Unwind { path, preserve, index } => {
                unwind(documents, path, *preserve, index.as_deref(), budget)
            }
            Self::Count(field) => Ok(count_document(field, documents.len() as u64).into_iter().collect()),
            Self::Lookup { from, local, foreign, target } => {
                lookup(documents, source, from, local, foreign, target, budget)
            }
        }
    }
}

fn parse_project(document: &Document) -> Result<Stage> {
    let document = &flatten(document);
    let plain = |value: &Bson| matches!(value, Bson::Boolean(_)) || filter_integer(value).is_some();
    if document.values().all(plain) {
        return match Projection::parse(document)? {
            Some(projection) => Ok(Stage::Project(projection)),
            None => Err(Error::invalid("$project specification must have at least one field")),
        };
    }
    let mut kept: Document = document
        .iter()
        .filter(|(_, value)| plain(value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if kept.iter().any(|(name, value)| name != "_id" && !truthy(value)) {
        return Err(Error::invalid("Invalid $project: cannot exclude fields while computing others"));
    }
    // Included, so that only what is listed or computed remains; a name that no field has keeps nothing.
    if !kept.keys().any(|name| name != "_id") {
        kept.insert("\u{1}", 1);
    }
    let fields = computed(document.iter().filter(|(_, value)| !plain(value)))?;
    Ok(Stage::Compute { projection: Projection::parse(&kept)?, fields })
}

/// Writes nested documents as dotted paths: `{a: {b: 1}}` is `{"a.b": 1}`, in `$project` and `$addFields` alike.
fn flatten(document: &Document) -> Document {
    let mut flat = Document::new();
    for (name, value) in document {
        match value {
            Bson::Document(inner) if !inner.is_empty() && !inner.keys().any(|name| name.starts_with('$')) => {
                flat.extend(
                    flatten(inner).into_iter().map(|(path, value)| (format!("{name}.{path}"), value)),
                );
            }
            value => {
                flat.insert(name, value.clone());
            }
        }
    }
    flat
}

fn computed<'a>(fields: impl Iterator<Item = (&'a String, &'a Bson)>) -> Result<Vec<(String, Expression)>> {
    fields
        .map(|(path, value)| {
            Path::parse(path)?;
            Ok((path.clone(), Expression::parse(value)?))
        })
        .collect()
}

fn parse_unset(argument: &Bson) -> Result<Stage> {
    let paths: Option<Vec<&str>> = match argument {
        Bson::String(path) => Some(vec![path]),
        Bson::Array(list) => list.iter().map(Bson::as_str).collect(),
        _ => None,
    };
    let paths = paths.ok_or_else(|| Error::invalid("$unset needs a string or an array of strings"))?;
    let fields: Document = paths.into_iter().map(|path| (path.to_owned(), Bson::Boolean(true))).collect();
    Update::parse(&bson::doc! { "$unset": fields }).map(Stage::Unset)
}

fn parse_unwind(argument: &Bson) -> Result<Stage> {
    let (path, preserve, index) = match argument {
        Bson::String(path) => (path.as_str(), false, None),
        Bson::Document(options) => (
            options.get_str("path").unwrap_or_default(),
            options.get_bool("preserveNullAndEmptyArrays").unwrap_or(false),
            options.get_str("includeArrayIndex").ok().map(str::to_owned),
        ),
        _ => ("", false, None),
    };
    let path = path.strip_prefix('$').filter(|path| !path.is_empty());
    let path =
        path.ok_or_else(|| Error::invalid("path option to $unwind stage should be prefixed with a '$'"))?;
    Ok(Stage::Unwind { path: path.split('.').map(str::to_owned).collect(), preserve, index })
}

fn parse_lookup(document: &Document) -> Result<Stage> {
    if document.contains_key("pipeline") || document.contains_key("let") {
        return Err(Error::invalid("$lookup with a pipeline is not supported"));
    }
    let text = |name: &str| {
        document
            .get_str(name)
            .map(str::to_owned)
            .map_err(|_| Error::invalid(format!("$lookup needs '{name}'")))
    };
    let local = text("localField")?.split('.').map(str::to_owned).collect();
    Ok(Stage::Lookup { from: text("from")?, local, foreign: text("foreignField")?, target: text("as")? })
}

fn project(projection: &Projection, document: &Document) -> Result<Document> {
    decode(&projection.apply(&raw(document)?))
}

fn decode(document: &RawDocumentBuf) -> Result<Document> {
    Document::try_from(document).map_err(Error::corrupt)
}

fn set(document: &mut Document, path: &str, value: Bson) -> Result<()> {
    if path.contains('.') {
        let id = document.remove("_id");
        let result = Update::parse(&bson::doc! { "$set": { path: value } })?.apply(document, true);
        if let Some(id) = id {
            document.insert("_id", id);
        }
        return result;
    }
    document.insert(path, value);
    Ok(())
}

/// Sets a computed field: in every document of an array on its path, and in place of what is no document.
fn set_computed(document: &mut Document, path: &str, value: Bson) {
    let Some((first, rest)) = path.split_once('.') else {
        document.insert(path, value);
        return;
    };
    let next = document.entry(first.to_owned()).or_insert(Bson::Null);
    set_in_value(next, rest, value);
}

fn set_in_value(next: &mut Bson, path: &str, value: Bson) {
    match next {
        Bson::Document(inner) => set_computed(inner, path, value),
        Bson::Array(elements) => {
            for element in elements {
                set_in_value(element, path, value.clone());
            }
        }
        other => {
            let mut made = Document::new();
            set_computed(&mut made, path, value);
            *other = Bson::Document(made);
        }
    }
}

fn unwind(
    documents: Vec<Document>,
    path: &[String],
    preserve: bool,
    index: Option<&str>,
    budget: &mut Budget,
) -> Result<Vec<Document>> {
    let mut unwound = Vec::new();
    let dotted = path.join(".");
    for mut document in documents {
        let value = field(&document, path);
        if matches!(&value, Some(Bson::Array(list)) if !list.is_empty()) {
            // Its place stays, so that fields keep their order; the array is not copied for each of its elements.
            set(&mut document, &dotted, Bson::Null)?;
        }
        let mut push = |element: Option<(usize, Bson)>| -> Result<()> {
            let mut copy = document.clone();
            if let Some(index) = index {
                copy.insert(
                    index,
                    element.as_ref().map_or(Bson::Null, |(position, _)| Bson::Int64(*position as i64)),
                );
            }
            if let Some((_, value)) = element {
                set(&mut copy, &dotted, value)?;
            }
            budget.charge(&copy)?;
            unwound.push(copy);
            Ok(())
        };
        match value {
            Some(Bson::Array(list)) if list.is_empty() && preserve => push(None)?,
            Some(Bson::Array(list)) => {
                for (position, value) in list.into_iter().enumerate() {
                    push(Some((position, value)))?;
                }
            }
            None | Some(Bson::Null) if preserve => push(None)?,
            None | Some(Bson::Null) => {}
            // A single value is an array of one.
            Some(value) => push(Some((0, value)))?,
        }
    }
    Ok(unwound)
}

fn lookup(
    documents: Vec<Document>,
    source: &Source<'_>,
    from: &str,
    local: &[String],
    foreign: &str,
    target: &str,
    budget: &mut Budget,
) -> Result<Vec<Document>> {
    let from = format!("{}.{from}", source.database);
    let mut joined = Vec::with_capacity(documents.len());
    for mut document in documents {
        budget.tick()?;
        let values = match field(&document, local) {
            Some(Bson::Array(list)) => list,
            Some(value) => vec![value],
            None => vec![Bson::Null],
        };
        let filter = Filter::parse(&bson::doc! { foreign: { "$in": values } })?;
        let query = Query { deadline: source.deadline, ..Query::new(filter) };
        let (mut matches, mut length) = (Vec::new(), 0);
        let found = source.engine.visit(&from, &query, &mut |found| {
            length += found.as_bytes().len();
            check_document_len(length)?;
            matches.push(Bson::Document(Document::try_from(found).map_err(Error::corrupt)?));
            Ok(true)
        });
        match found {
            // A collection that does not exist joins nothing.
            Ok(_) | Err(Error::NoCollection(_)) => {}
            Err(error) => return Err(error),
        }
        set_computed(&mut document, target, Bson::Array(matches));
        budget.charge(&document)?;
        joined.push(document);
    }
    Ok(joined)
}
