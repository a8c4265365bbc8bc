//! Assignability of types and substitution of type parameters.
//!
//! Assignability in CEL is symmetric but for `null`, and `dyn` fits everything. Type variables are bound as they
//! meet types; when a variable meets a second type that fits the first, the more general one is kept. A failed
//! attempt leaves no trace: bindings are written to a log and undone.

use std::sync::Arc;

use crate::types::{Param, Type};

/// Bindings of type variables.
#[derive(Debug, Default)]
pub(crate) struct Substitutions {
    bound: Vec<Option<Type>>,
    /// Bindings to restore if the current attempt fails.
    log: Vec<(u32, Option<Type>)>,
}

impl Substitutions {
    /// A type variable that nothing is known of.
    pub(crate) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Param(Param::Variable(self.bound.len() as u32 - 1))
    }

    /// Returns whether every `from[i]` is assignable to `to[i]`, and binds type parameters if so.
    pub(crate) fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        self.log.clear();
        let fits = from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.fits(from, to));
        if !fits {
            while let Some((variable, before)) = self.log.pop() {
                self.bound[variable as usize] = before;
            }
        }
        fits
    }

    /// Returns whether `from` is assignable to `to`, and binds type parameters if so.
    pub(crate) fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    /// `ty` with bound variables replaced; unbound ones become `dyn` where `finish` is set.
    pub(crate) fn apply(&self, ty: &Type, finish: bool) -> Type {
        match ty {
            Type::Param(Param::Variable(number)) => match self.find(*number) {
                Some(bound) => self.apply(bound, finish),
                None if finish => Type::Dyn,
                None => ty.clone(),
            },
            Type::Param(Param::Named(_)) if finish => Type::Dyn,
            Type::List(item) => Type::list(self.apply(item, finish)),
            Type::Map(key, value) => Type::map(self.apply(key, finish), self.apply(value, finish)),
            Type::Optional(value) => Type::optional(self.apply(value, finish)),
            Type::Type(Some(inner)) => Type::of(self.apply(inner, finish)),
            other => other.clone(),
        }
    }

    fn find(&self, variable: u32) -> Option<&Type> {
        self.bound.get(variable as usize)?.as_ref()
    }

    fn bind(&mut self, variable: u32, ty: Type) {
        if let Some(slot) = self.bound.get_mut(variable as usize) {
            let before = slot.replace(ty);
            self.log.push((variable, before));
        }
    }

    fn fits(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Param(Param::Variable(variable)) = to {
            match self.meets(from, *variable) {
                Meeting::Fits => return true,
                Meeting::Clashes => return false,
                Meeting::Circular => {}
            }
        }
        if let Type::Param(Param::Variable(variable)) = from {
            return matches!(self.meets(to, *variable), Meeting::Fits);
        }
        match (from, to) {
            (from, to) if from.is_dyn_or_error() || to.is_dyn_or_error() => true,
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(from), Type::List(to)) | (Type::Optional(from), Type::Optional(to)) => {
                self.fits(from, to)
            }
            (Type::Map(from_key, from_value), Type::Map(to_key, to_value)) => {
                self.fits(from_key, to_key) && self.fits(from_value, to_value)
            }
            (from, to) => from == to,
        }
    }

    fn meets(&mut self, ty: &Type, variable: u32) -> Meeting {
        if *ty == Type::Param(Param::Variable(variable)) {
            return Meeting::Fits;
        }
        if let Some(bound) = self.find(variable).cloned() {
            if *ty == bound {
                return Meeting::Fits;
            }
            if !self.fits(ty, &bound) {
                return Meeting::Clashes;
            }
            let general = if is_as_general(ty, &bound) { ty.clone() } else { bound };
            if !self.occurs(variable, &general) {
                self.bind(variable, general);
            }
            return Meeting::Fits;
        }
        if self.occurs(variable, ty) {
            return Meeting::Circular;
        }
        self.bind(variable, ty.clone());
        Meeting::Fits
    }

    fn occurs(&self, variable: u32, within: &Type) -> bool {
        match within {
            Type::Param(Param::Variable(other)) => {
                *other == variable || self.find(*other).is_some_and(|bound| self.occurs(variable, bound))
            }
            Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => {
                self.occurs(variable, inner)
            }
            Type::Map(key, value) => self.occurs(variable, key) || self.occurs(variable, value),
            _ => false,
        }
    }
}

enum Meeting {
    Fits,
    Clashes,
    /// The variable occurs inside the type: no binding is possible in this direction.
    Circular,
}

fn is_nullable(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Null
            | Type::Object(_)
            | Type::Message(_)
            | Type::Opaque(_)
            | Type::Optional(_)
            | Type::Duration
            | Type::Timestamp
    )
}

/// Returns whether `one` is equal to or more general than `other`.
pub(crate) fn is_as_general(one: &Type, other: &Type) -> bool {
    match (one, other) {
        (Type::Dyn | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Param(_)) => false,
        (Type::List(one), Type::List(other)) | (Type::Optional(one), Type::Optional(other)) => {
            is_as_general(one, other)
        }
        (Type::Map(one_key, one_value), Type::Map(other_key, other_value)) => {
            is_as_general(one_key, other_key) && is_as_general(one_value, other_value)
        }
        (Type::Type(_), Type::Type(_)) => true,
        (one, other) => one == other,
    }
}

/// A signature's type with its named parameters replaced.
pub(crate) fn instantiate(ty: &Type, names: &[(&'static str, Type)]) -> Type {
    let nested = |inner: &Arc<Type>| instantiate(inner, names);
    match ty {
        Type::Param(Param::Named(name)) => {
            names.iter().find(|(known, _)| known == name).map_or(Type::Dyn, |(_, ty)| ty.clone())
        }
        Type::List(item) => Type::list(nested(item)),
        Type::Map(key, value) => Type::map(nested(key), nested(value)),
        Type::Optional(value) => Type::optional(nested(value)),
        Type::Type(Some(inner)) => Type::of(nested(inner)),
        other => other.clone(),
    }
}

/// The names of the type parameters in a signature.
pub(crate) fn parameter_names(ty: &Type, names: &mut Vec<&'static str>) {
    match ty {
        Type::Param(Param::Named(name)) if !names.contains(name) => names.push(name),
        Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => parameter_names(inner, names),
        Type::Map(key, value) => {
            parameter_names(key, names);
            parameter_names(value, names);
        }
        _ => {}
    }
}
