//! Parsing of updates.

use bson::{Bson, Document};

use super::{Condition, Operator, Push, Update};
use crate::{
    error::{Error, Result},
    filter::Filter,
    filter_integer,
    path::Path,
};

impl Update {
    /// Parses an update: operators, or a replacement if no field begins with `$`.
    pub fn parse(document: &Document) -> Result<Self> {
        let operators = document.keys().filter(|name| name.starts_with('$')).count();
        if operators == 0 {
            return Ok(Self::Replace(document.clone()));
        }
        if operators < document.len() {
            return Err(Error::invalid("an update cannot mix operators and fields"));
        }
        let mut parsed: Vec<(Path, Operator)> = Vec::new();
        for (name, arguments) in document {
            let Bson::Document(arguments) = arguments else {
                return Err(Error::invalid(format!("{name} needs a document of fields")));
            };
            for (path, argument) in arguments {
                if path.split('.').any(|component| component.starts_with('$')) {
                    return Err(Error::invalid(format!("positional operators are not supported: {path:?}")));
                }
                let path = Path::parse(path)?;
                let operator = parse_operator(name, argument)?;
                let conflict = |other: &Path| -> Result<()> {
                    let overlap = parsed.iter().any(|(path, operator)| {
                        path.overlaps(other)
                            || matches!(operator, Operator::Rename(target) if target.overlaps(other))
                    });
                    if overlap {
                        return Err(Error::invalid(format!(
                            "Updating the path '{other}' would create a conflict at '{other}'"
                        )));
                    }
                    Ok(())
                };
                conflict(&path)?;
                if let Operator::Rename(target) = &operator {
                    conflict(target)?;
                    if target.overlaps(&path) {
                        return Err(Error::invalid("the source and target of $rename must differ"));
                    }
                }
                parsed.push((path, operator));
            }
        }
        Ok(Self::Operators(parsed))
    }

    /// Returns true if this replaces whole documents.
    pub fn is_replacement(&self) -> bool {
        matches!(self, Self::Replace(_))
    }
}

fn parse_operator(name: &str, argument: &Bson) -> Result<Operator> {
    Ok(match name {
        "$set" => Operator::Set(argument.clone()),
        "$setOnInsert" => Operator::SetOnInsert(argument.clone()),
        "$unset" => Operator::Unset,
        "$inc" => Operator::Increment(number(name, argument)?),
        "$mul" => Operator::Multiply(number(name, argument)?),
        "$min" => Operator::Min(argument.clone()),
        "$max" => Operator::Max(argument.clone()),
        "$rename" => match argument {
            Bson::String(target) => Operator::Rename(Path::parse(target)?),
            _ => return Err(Error::invalid("the target of $rename must be a string")),
        },
        "$push" => Operator::Push(parse_push(argument)?),
        "$lpush" => {
            let push = parse_push(argument)?;
            Operator::Push(Push { position: Some(push.position.unwrap_or(0)), ..push })
        }
        "$addToSet" => match argument {
            Bson::Document(document) if document.contains_key("$each") => {
                Operator::AddToSet(array("$each", document.get("$each").unwrap_or(&Bson::Null))?)
            }
            value => Operator::AddToSet(vec![value.clone()]),
        },
        "$pop" => match filter_integer(argument) {
            Some(1) => Operator::Pop { front: false },
            Some(-1) => Operator::Pop { front: true },
            _ => return Err(Error::invalid("$pop expects 1 or -1")),
        },
        "$pull" => Operator::Pull(parse_condition(argument)?),
        "$pullAll" => Operator::PullAll(array(name, argument)?),
        "$currentDate" => match argument {
            Bson::Boolean(true) => Operator::CurrentDate,
            Bson::Document(kind) if kind.get_str("$type").is_ok_and(|kind| kind == "date") => {
                Operator::CurrentDate
            }
            _ => return Err(Error::invalid("$currentDate expects true or {$type: \"date\"}")),
        },
        _ => return Err(Error::invalid(format!("Unknown modifier: {name}"))),
    })
}

fn number(name: &str, argument: &Bson) -> Result<Bson> {
    match argument {
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) => Ok(argument.clone()),
        _ => Err(Error::invalid(format!("Cannot use {name} with a non-numeric argument: {argument}"))),
    }
}

fn array(name: &str, argument: &Bson) -> Result<Vec<Bson>> {
    argument.as_array().cloned().ok_or_else(|| Error::invalid(format!("{name} must be an array")))
}

fn parse_push(argument: &Bson) -> Result<Push> {
    let Some(modifiers) = argument.as_document().filter(|document| document.contains_key("$each")) else {
        return Ok(Push { values: vec![argument.clone()], ..Push::default() });
    };
    let mut push = Push::default();
    for (name, value) in modifiers {
        let integer =
            || filter_integer(value).ok_or_else(|| Error::invalid(format!("{name} must be an integer")));
        match name.as_str() {
            "$each" => push.values = array(name, value)?,
            "$position" => push.position = Some(integer()?),
            "$slice" => push.slice = Some(integer()?),
            "$sort" => match value {
                Bson::Document(order) => push.sort = Some(order.clone()),
                _ => push.sort_descending = Some(integer()? < 0),
            },
            _ => return Err(Error::invalid(format!("Unrecognized clause in $push: {name}"))),
        }
    }
    Ok(push)
}

fn parse_condition(argument: &Bson) -> Result<Condition> {
    match argument {
        Bson::Document(document) if document.keys().any(|name| name.starts_with('$')) => {
            let mut wrapped = Document::new();
            wrapped.insert("e", document.clone());
            Ok(Condition::Satisfies(Filter::parse(&wrapped)?))
        }
        Bson::Document(document) => Ok(Condition::Matches(Filter::parse(document)?)),
        Bson::RegularExpression(_) => {
            let mut wrapped = Document::new();
            wrapped.insert("e", argument.clone());
            Ok(Condition::Satisfies(Filter::parse(&wrapped)?))
        }
        _ => Ok(Condition::Equal(argument.clone())),
    }
}
