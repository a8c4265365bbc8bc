//! `$group` and its accumulators.

use std::collections::HashMap;

use bson::{Bson, Document};

use super::{
    budget::{Budget, value_len},
    expression::{Expression, add, float},
};
use crate::{
    error::{Error, Result},
    sort::{compare_bson, key_of},
};

/// A parsed `$group`.
#[derive(Debug, Clone)]
pub struct Group {
    id: Expression,
    fields: Vec<(String, Accumulator, Expression)>,
}

#[derive(Debug, Clone, Copy)]
enum Accumulator {
    Sum,
    Average,
    Min,
    Max,
    First,
    Last,
    Push,
    AddToSet,
}

/// Running state of an accumulator.
#[derive(Debug, Clone)]
enum State {
    Sum(Bson),
    Average { sum: f64, count: u64 },
    One(Option<Bson>),
    List(Vec<Bson>),
}

impl Group {
    pub(super) fn parse(document: &Document) -> Result<Self> {
        let id =
            document.get("_id").ok_or_else(|| Error::invalid("a group specification must include an _id"))?;
        let mut fields = Vec::new();
        for (name, value) in document.iter().filter(|(name, _)| *name != "_id") {
            let accumulator = value.as_document().filter(|document| document.len() == 1);
            let Some((operator, argument)) = accumulator.and_then(|document| document.iter().next()) else {
                return Err(Error::invalid(format!("The field '{name}' must be an accumulator object")));
            };
            let (accumulator, argument) = match operator.as_str() {
                "$sum" => (Accumulator::Sum, Expression::parse(argument)?),
                "$count" => (Accumulator::Sum, Expression::Literal(Bson::Int32(1))),
                "$avg" => (Accumulator::Average, Expression::parse(argument)?),
                "$min" => (Accumulator::Min, Expression::parse(argument)?),
                "$max" => (Accumulator::Max, Expression::parse(argument)?),
                "$first" => (Accumulator::First, Expression::parse(argument)?),
                "$last" => (Accumulator::Last, Expression::parse(argument)?),
                "$push" => (Accumulator::Push, Expression::parse(argument)?),
                "$addToSet" => (Accumulator::AddToSet, Expression::parse(argument)?),
                _ => return Err(Error::invalid(format!("unknown group operator '{operator}'"))),
            };
            fields.push((name.clone(), accumulator, argument));
        }
        Ok(Self { id: Expression::parse(id)?, fields })
    }

    pub(super) fn apply(&self, documents: Vec<Document>, budget: &mut Budget) -> Result<Vec<Document>> {
        // Groups come in the order in which they are met.
        let mut positions: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut groups: Vec<(Bson, Vec<State>)> = Vec::new();
        for document in &documents {
            budget.tick()?;
            let id = self.id.evaluate(document)?;
            let position = *positions.entry(key_of(&id)).or_insert_with(|| {
                groups
                    .push((id, self.fields.iter().map(|(_, accumulator, _)| accumulator.start()).collect()));
                groups.len() - 1
            });
            for ((_, accumulator, argument), state) in self.fields.iter().zip(&mut groups[position].1) {
                accumulator.add(state, argument.value(document)?, budget)?;
            }
        }
        let finish = |(id, states): (Bson, Vec<State>)| {
            let mut document = Document::new();
            document.insert("_id", id);
            for ((name, ..), state) in self.fields.iter().zip(states) {
                document.insert(name, state.finish());
            }
            document
        };
        Ok(groups.into_iter().map(finish).collect())
    }
}

impl Accumulator {
    fn start(self) -> State {
        match self {
            Self::Sum => State::Sum(Bson::Int32(0)),
            Self::Average => State::Average { sum: 0.0, count: 0 },
            Self::Min | Self::Max | Self::First | Self::Last => State::One(None),
            Self::Push | Self::AddToSet => State::List(Vec::new()),
        }
    }

    fn add(self, state: &mut State, value: Option<Bson>, budget: &mut Budget) -> Result<()> {
        match (self, state) {
            // Only numbers count.
            (Self::Sum, State::Sum(sum)) => {
                if let Some(value) = value.filter(|value| float(value).is_some()) {
                    *sum = add(sum, &value)?;
                }
            }
            (Self::Average, State::Average { sum, count }) => {
                if let Some(value) = value.as_ref().and_then(float) {
                    *sum += value;
                    *count += 1;
                }
            }
            (Self::First, State::One(present)) => {
                present.get_or_insert(value.unwrap_or(Bson::Null));
            }
            (Self::Last, State::One(present)) => *present = Some(value.unwrap_or(Bson::Null)),
            (Self::Min | Self::Max, State::One(present)) => {
                let Some(value) = value.filter(|value| *value != Bson::Null) else { return Ok(()) };
                let better = present.as_ref().is_none_or(|present| {
                    let order = compare_bson(&value, present);
                    if matches!(self, Self::Min) { order.is_lt() } else { order.is_gt() }
                });
                if better {
                    *present = Some(value);
                }
            }
            (Self::Push, State::List(list)) => {
                budget.charge_bytes(value.as_ref().map_or(0, value_len))?;
                list.extend(value);
            }
            (Self::AddToSet, State::List(list)) => {
                if let Some(value) = value
                    && !list.iter().any(|present| compare_bson(present, &value).is_eq())
                {
                    budget.charge_bytes(value_len(&value))?;
                    list.push(value);
                }
            }
            // Each accumulator starts its own state.
            _ => {}
        }
        Ok(())
    }
}

impl State {
    fn finish(self) -> Bson {
        match self {
            Self::Sum(sum) => sum,
            Self::Average { count: 0, .. } => Bson::Null,
            Self::Average { sum, count } => Bson::Double(sum / count as f64),
            Self::One(value) => value.unwrap_or(Bson::Null),
            Self::List(list) => Bson::Array(list),
        }
    }
}
