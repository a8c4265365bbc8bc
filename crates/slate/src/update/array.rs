//! Updates of arrays.

use bson::{Bson, Document, RawDocumentBuf};

use super::{Condition, Push};
use crate::{
    error::{Error, Result},
    sort::{Sort, compare_bson},
};

pub(super) fn push(array: &mut Vec<Bson>, push: &Push) -> Result<()> {
    let position = match push.position {
        None => array.len(),
        Some(position) if position >= 0 => array.len().min(position.unsigned_abs() as usize),
        Some(position) => array.len().saturating_sub(position.unsigned_abs() as usize),
    };
    array.splice(position..position, push.values.iter().cloned());
    if let Some(descending) = push.sort_descending {
        array.sort_by(|left, right| {
            let order = compare_bson(left, right);
            if descending { order.reverse() } else { order }
        });
    }
    if let Some(order) = &push.sort {
        let sort = Sort::parse(order)?;
        array.sort_by_cached_key(|element| {
            let document = element.as_document().and_then(|element| RawDocumentBuf::try_from(element).ok());
            document.map(|document| sort.key(&document))
        });
    }
    match push.slice {
        None => {}
        Some(limit) if limit >= 0 => array.truncate(limit.unsigned_abs() as usize),
        Some(limit) => {
            let drop = array.len().saturating_sub(limit.unsigned_abs() as usize);
            array.drain(..drop);
        }
    }
    if array.len() > crate::document::DOCUMENT_LEN_MAX {
        return Err(Error::TooLarge("the array is too long".to_owned()));
    }
    Ok(())
}

pub(super) fn add_to_set(array: &mut Vec<Bson>, values: &[Bson]) {
    for value in values {
        if !array.iter().any(|present| compare_bson(present, value).is_eq()) {
            array.push(value.clone());
        }
    }
}

impl Condition {
    pub(super) fn holds(&self, element: &Bson) -> bool {
        match self {
            Self::Equal(value) => compare_bson(element, value).is_eq(),
            Self::Matches(filter) => {
                let document =
                    element.as_document().and_then(|element| RawDocumentBuf::try_from(element).ok());
                document.is_some_and(|document| filter.matches(&document))
            }
            Self::Satisfies(filter) => {
                let mut wrapped = Document::new();
                wrapped.insert("e", element.clone());
                RawDocumentBuf::try_from(&wrapped).is_ok_and(|document| filter.matches(&document))
            }
        }
    }
}
