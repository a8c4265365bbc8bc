//! Application of updates to documents.

use bson::{Bson, DateTime, Document};

use super::{Operator, Update, array, number};
use crate::{
    error::{Error, Result},
    path::Path,
    sort::compare_bson,
};

/// Largest index that an update may create in an array by padding it with nulls.
const PADDING_MAX: usize = 100_000;

impl Update {
    /// Applies the update. `inserting` says that the document is new (an upsert).
    pub fn apply(&self, document: &mut Document, inserting: bool) -> Result<()> {
        let id = document.get("_id").cloned();
        match self {
            Self::Replace(replacement) => {
                let mut next = Document::new();
                if let Some(id) = &id {
                    next.insert("_id", id.clone());
                }
                next.extend(replacement.clone());
                *document = next;
            }
            Self::Merge(fields) => document.extend(fields.clone()),
            Self::Operators(operators) => {
                for (path, operator) in operators {
                    apply_operator(document, path, operator, inserting)?;
                }
            }
        }
        match (id, document.get("_id")) {
            (Some(before), Some(after)) if compare_bson(&before, after).is_eq() => Ok(()),
            (None, _) => Ok(()),
            _ => Err(Error::invalid(
                "Performing an update on the path '_id' would modify the immutable field '_id'",
            )),
        }
    }
}

fn apply_operator(document: &mut Document, path: &Path, operator: &Operator, inserting: bool) -> Result<()> {
    match operator {
        Operator::SetOnInsert(_) if !inserting => Ok(()),
        Operator::Set(value) | Operator::SetOnInsert(value) => set(document, path, value.clone()),
        Operator::CurrentDate => set(document, path, Bson::DateTime(DateTime::now())),
        Operator::Unset => {
            unset(document, path);
            Ok(())
        }
        Operator::Rename(target) => match take(document, path) {
            Some(value) => set(document, target, value),
            None => Ok(()),
        },
        Operator::Min(value) => {
            set_extreme(document, path, value, |present| compare_bson(value, present).is_lt())
        }
        Operator::Max(value) => {
            set_extreme(document, path, value, |present| compare_bson(value, present).is_gt())
        }
        Operator::Increment(amount) => match find_mut(document, path) {
            Some(present) => {
                *present = number::add(present, amount, path)?;
                Ok(())
            }
            None => set(document, path, amount.clone()),
        },
        Operator::Multiply(factor) => match find_mut(document, path) {
            Some(present) => {
                *present = number::multiply(present, factor, path)?;
                Ok(())
            }
            None => set(document, path, number::zero_like(factor)),
        },
        Operator::Push(push) => array::push(array_at(document, path, "$push")?, push),
        Operator::AddToSet(values) => {
            array::add_to_set(array_at(document, path, "$addToSet")?, values);
            Ok(())
        }
        Operator::Pop { front } => with_array(document, path, "$pop", |array| {
            if *front {
                if !array.is_empty() {
                    array.remove(0);
                }
            } else {
                array.pop();
            }
        }),
        Operator::Pull(condition) => {
            with_array(document, path, "$pull", |array| array.retain(|element| !condition.holds(element)))
        }
        Operator::PullAll(values) => with_array(document, path, "$pullAll", |array| {
            array.retain(|element| !values.iter().any(|value| compare_bson(element, value).is_eq()));
        }),
    }
}

fn set_extreme(
    document: &mut Document,
    path: &Path,
    value: &Bson,
    better: impl Fn(&Bson) -> bool,
) -> Result<()> {
    match find_mut(document, path) {
        Some(present) => {
            if better(present) {
                *present = value.clone();
            }
            Ok(())
        }
        None => set(document, path, value.clone()),
    }
}

/// Returns the value at a path, if it exists.
fn find_mut<'a>(document: &'a mut Document, path: &Path) -> Option<&'a mut Bson> {
    let (first, rest) = path.components().split_first()?;
    let mut value = document.get_mut(&**first)?;
    for component in rest {
        value = match value {
            Bson::Document(inner) => inner.get_mut(&**component)?,
            Bson::Array(inner) => inner.get_mut(component.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(value)
}

/// Sets the value at a path, creating documents on the way.
fn set(document: &mut Document, path: &Path, value: Bson) -> Result<()> {
    *slot(document, path, || Bson::Null)? = value;
    Ok(())
}

/// Returns the place at a path, creating it with `default` and documents on the way.
fn slot<'a>(document: &'a mut Document, path: &Path, default: impl FnOnce() -> Bson) -> Result<&'a mut Bson> {
    let components = path.components();
    let (last, parents) = components.split_last().ok_or_else(|| Error::invalid("an update needs a path"))?;
    let mut container = Container::Document(document);
    for component in parents {
        let next = container.entry(component, path, || Bson::Document(Document::new()))?;
        container = match next {
            Bson::Document(inner) => Container::Document(inner),
            Bson::Array(inner) => Container::Array(inner),
            _ => {
                return Err(Error::invalid(format!(
                    "Cannot create field '{last}' in element {{{component}: ...}}: it is no document"
                )));
            }
        };
    }
    container.entry(last, path, default)
}

enum Container<'a> {
    Document(&'a mut Document),
    Array(&'a mut Vec<Bson>),
}

impl<'a> Container<'a> {
    fn entry(self, name: &str, path: &Path, default: impl FnOnce() -> Bson) -> Result<&'a mut Bson> {
        match self {
            Self::Document(document) => Ok(document.entry(name.to_owned()).or_insert_with(default)),
            Self::Array(array) => {
                let index: usize = name.parse().map_err(|_| {
                    Error::invalid(format!("Cannot create field '{name}' in an array (path '{path}')"))
                })?;
                if index >= array.len() {
                    if index > PADDING_MAX {
                        return Err(Error::invalid(format!("array index {index} is too large")));
                    }
                    array.resize(index, Bson::Null);
                    array.push(default());
                }
                array.get_mut(index).ok_or_else(|| Error::invalid("array index out of range"))
            }
        }
    }
}

fn unset(document: &mut Document, path: &Path) {
    if let [only] = path.components() {
        document.remove(&**only);
        return;
    }
    with_parent(document, path, |parent, last| match parent {
        Bson::Document(inner) => {
            inner.remove(last);
        }
        Bson::Array(inner) => {
            if let Some(element) = last.parse::<usize>().ok().and_then(|index| inner.get_mut(index)) {
                *element = Bson::Null;
            }
        }
        _ => {}
    });
}

fn take(document: &mut Document, path: &Path) -> Option<Bson> {
    if let [only] = path.components() {
        return document.remove(&**only);
    }
    let mut taken = None;
    with_parent(document, path, |parent, last| {
        if let Bson::Document(inner) = parent {
            taken = inner.remove(last);
        }
    });
    taken
}

fn with_parent(document: &mut Document, path: &Path, change: impl FnOnce(&mut Bson, &str)) {
    let Some((last, parents)) = path.components().split_last() else { return };
    let Ok(parent) = Path::parse(&parents.join(".")) else { return };
    if let Some(parent) = find_mut(document, &parent) {
        change(parent, last);
    }
}

fn array_at<'a>(document: &'a mut Document, path: &Path, operator: &str) -> Result<&'a mut Vec<Bson>> {
    match slot(document, path, || Bson::Array(Vec::new()))? {
        Bson::Array(array) => Ok(array),
        _ => Err(not_an_array(path, operator)),
    }
}

fn with_array(
    document: &mut Document,
    path: &Path,
    operator: &str,
    change: impl FnOnce(&mut Vec<Bson>),
) -> Result<()> {
    match find_mut(document, path) {
        Some(Bson::Array(array)) => {
            change(array);
            Ok(())
        }
        Some(_) => Err(not_an_array(path, operator)),
        None => Ok(()),
    }
}

fn not_an_array(path: &Path, operator: &str) -> Error {
    Error::invalid(format!("Cannot apply {operator} to the non-array field '{path}'"))
}
