//! Templates: manifests with expressions in them, compiled once and filled in per instance.

use orlop_cel::{Env, Schema, Type};
use orlop_regex::go_quote::quote;
use serde_json::{Map, Value as Json};

use crate::expression::{
    Expression, Failure, Identifiers, Scope, environment, is_assignable, literal_type_name, standalone,
    to_cel, types_of_schema,
};

/// Objects nested deeper than this are refused; the server refuses them as well.
const DEPTH_MAX: usize = 128;

/// A place in a manifest that an expression fills.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// Where it stands: `spec.containers[0].image`.
    pub(crate) path: String,
    /// The expression as CEL.
    pub(crate) text: String,
    /// The expression as errors show it: a text that holds expressions stands as the author wrote it.
    pub(crate) source: String,
    /// The type that the field has.
    pub(crate) expected: Type,
    /// True if it stands for a key of a map rather than a value.
    pub(crate) is_key: bool,
    /// Names that it reads.
    pub(crate) identifiers: Identifiers,
}

/// A manifest before its expressions are compiled.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) slots: Vec<Slot>,
    root: Piece,
}

/// A part of a manifest. Parts without expressions are kept as they are.
#[derive(Clone, Debug)]
enum Piece {
    Literal(Json),
    Slot(usize),
    Object(Vec<(Name, Piece)>),
    Array(Vec<Piece>),
}

/// A key of a map.
#[derive(Clone, Debug)]
enum Name {
    Literal(String),
    Slot(usize),
}

/// A compiled manifest.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    expressions: Vec<Expression>,
    /// Path of each expression, and its text as errors show it.
    places: Vec<(String, String)>,
    root: Piece,
}

impl Draft {
    /// Finds the expressions of a manifest and checks its literals against the schema.
    pub(crate) fn parse(manifest: &Json, schema: Option<&Schema>) -> Result<Self, String> {
        let mut reader = Reader { slots: Vec::new() };
        let ty = schema.map_or(Type::Dyn, Schema::to_type);
        let root = reader.read(manifest, &ty, "", 0)?;
        Ok(Self { slots: reader.slots, root })
    }

    /// Finds the expressions of a text that must come out as a string.
    pub(crate) fn parse_text(text: &str) -> Result<Self, String> {
        let mut reader = Reader { slots: Vec::new() };
        let root = reader.read(&Json::String(text.to_owned()), &Type::String, "", 0)?;
        Ok(Self { slots: reader.slots, root })
    }

    /// Compiles the expressions in `env`; `place` names the template in errors.
    pub(crate) fn compile(self, env: &Env, place: &str) -> Result<Template, String> {
        let mut expressions = Vec::with_capacity(self.slots.len());
        for slot in &self.slots {
            let expression = Expression::compile(env, &slot.text).map_err(|error| {
                format!(
                    "failed to compile template expression {} at path {}: {error}",
                    quote(&slot.source),
                    quote(&slot.path)
                )
            })?;
            let result = expression.result_type();
            if let Err(why) = is_assignable(result, &slot.expected) {
                return Err(format!(
                    "type mismatch in {place} at path {}: expression {} returns type \"{result}\" but expected \
                     \"{}\": {why}",
                    quote(&slot.path),
                    quote(&slot.source),
                    slot.expected
                ));
            }
            expressions.push(expression);
        }
        let places = self.slots.into_iter().map(|slot| (slot.path, slot.source)).collect();
        Ok(Template { expressions, places, root: self.root })
    }
}

struct Reader {
    slots: Vec<Slot>,
}

impl Reader {
    fn read(&mut self, json: &Json, ty: &Type, path: &str, depth: usize) -> Result<Piece, String> {
        if depth > DEPTH_MAX {
            return Err(format!("path {path} is nested too deep (max {DEPTH_MAX})"));
        }
        match json {
            Json::String(text) => match self.slot(text, ty, path, false)? {
                Some(slot) => Ok(Piece::Slot(slot)),
                None => literal(json, ty, path),
            },
            Json::Object(fields) => {
                check_literal(json, ty, path)?;
                let mut pieces = Vec::with_capacity(fields.len());
                for (name, value) in fields {
                    let below = join(path, name);
                    let (key, field) = match self.slot(name, &Type::String, &below, true)? {
                        Some(slot) => (Name::Slot(slot), element_type(ty)),
                        None => (Name::Literal(name.clone()), field_type(ty, name, &below)?),
                    };
                    pieces.push((key, self.read(value, &field, &below, depth + 1)?));
                }
                let plain = |(key, piece): &(Name, Piece)| {
                    matches!(key, Name::Literal(_)) && matches!(piece, Piece::Literal(_))
                };
                Ok(if pieces.iter().all(plain) {
                    Piece::Literal(json.clone())
                } else {
                    Piece::Object(pieces)
                })
            }
            Json::Array(items) => {
                check_literal(json, ty, path)?;
                let item_type = element_type(ty);
                let mut pieces = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    pieces.push(self.read(item, &item_type, &format!("{path}[{index}]"), depth + 1)?);
                }
                let plain = pieces.iter().all(|piece| matches!(piece, Piece::Literal(_)));
                Ok(if plain { Piece::Literal(json.clone()) } else { Piece::Array(pieces) })
            }
            _ => literal(json, ty, path),
        }
    }

    fn slot(
        &mut self,
        text: &str,
        expected: &Type,
        path: &str,
        is_key: bool,
    ) -> Result<Option<usize>, String> {
        let misplaced = |error: String| format!("{error} at path {path}");
        let Some(cel) = to_cel(text).map_err(misplaced)? else {
            return Ok(None);
        };
        let source = standalone(text).map_err(misplaced)?.unwrap_or_else(|| text.to_owned());
        let ast = environment().parse(&cel).map_err(|error| {
            format!("failed to parse expression {} at path {}: {error}", quote(&source), quote(path))
        })?;
        let identifiers = Identifiers::of(&ast);
        self.slots.push(Slot {
            path: path.to_owned(),
            text: cel,
            source,
            expected: expected.clone(),
            is_key,
            identifiers,
        });
        Ok(Some(self.slots.len() - 1))
    }
}

fn literal(json: &Json, ty: &Type, path: &str) -> Result<Piece, String> {
    check_literal(json, ty, path)?;
    Ok(Piece::Literal(json.clone()))
}

fn check_literal(json: &Json, ty: &Type, path: &str) -> Result<(), String> {
    let Some(wanted) = types_of_schema(ty) else { return Ok(()) };
    let found = literal_type_name(json);
    let fits =
        wanted.contains(&found) || found == "null" || (found == "integer" && wanted.contains(&"number"));
    if fits {
        Ok(())
    } else {
        Err(format!("expected {} type for path {path}, got {found}", wanted.join(" or ")))
    }
}

fn field_type(ty: &Type, name: &str, path: &str) -> Result<Type, String> {
    match ty {
        Type::Object(schema) => match schema.fields().find(|(known, _)| *known == name) {
            Some((_, field)) => Ok(field.to_type()),
            None if schema.is_open() => Ok(Type::Dyn),
            None => {
                Err(format!("error getting field schema for path {path}: schema not found for field {name}"))
            }
        },
        other => Ok(element_type(other)),
    }
}

fn element_type(ty: &Type) -> Type {
    match ty {
        Type::List(item) => Type::clone(item),
        Type::Map(_, value) => Type::clone(value),
        _ => Type::Dyn,
    }
}

/// Appends a field to a path; names that are not plain words go in brackets.
pub(crate) fn join(path: &str, name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    match (plain, path.is_empty()) {
        (true, true) => name.to_owned(),
        (true, false) => format!("{path}.{name}"),
        (false, _) => format!("{path}[\"{name}\"]"),
    }
}

impl Template {
    /// Fills in the expressions; `None` stands for `omit()`.
    pub(crate) fn fill(&self, scope: &Scope<'_>) -> Result<Option<Json>, Failure> {
        self.fill_piece(&self.root, scope)
    }

    /// Fills in what can be filled in: fields whose expressions have no value are left out, lists as a whole.
    pub(crate) fn fill_available(
        &self,
        scope: &Scope<'_>,
        failures: &mut Vec<(String, Failure)>,
    ) -> Option<Json> {
        self.available(&self.root, scope, failures)
    }

    /// The compiled expressions.
    pub(crate) fn expressions(&self) -> &[Expression] {
        &self.expressions
    }

    fn evaluate(&self, slot: usize, scope: &Scope<'_>) -> Result<Option<Json>, Failure> {
        let Some(expression) = self.expressions.get(slot) else { return Ok(None) };
        expression.evaluate(scope).map_err(|failure| {
            let (path, source) =
                self.places.get(slot).map(|(path, source)| (&**path, &**source)).unwrap_or_default();
            let message =
                format!("expression {} at path {}: {}", quote(source), quote(path), failure.message());
            match failure {
                // Nothing that the cluster does brings a field of the instance's spec.
                Failure::Pending(_) if expression.variables.iter().any(|name| name != "schema") => {
                    Failure::Pending(message)
                }
                _ => Failure::Failed(message),
            }
        })
    }

    fn fill_piece(&self, piece: &Piece, scope: &Scope<'_>) -> Result<Option<Json>, Failure> {
        Ok(Some(match piece {
            Piece::Literal(json) => json.clone(),
            Piece::Slot(slot) => return self.evaluate(*slot, scope),
            Piece::Object(fields) => {
                let mut object = Map::new();
                for (name, field) in fields {
                    let Some(name) = self.name(name, scope)? else { continue };
                    if let Some(value) = self.fill_piece(field, scope)? {
                        object.insert(name, value);
                    }
                }
                Json::Object(object)
            }
            Piece::Array(items) => {
                let mut array = Vec::with_capacity(items.len());
                for item in items {
                    array.extend(self.fill_piece(item, scope)?);
                }
                Json::Array(array)
            }
        }))
    }

    fn name(&self, name: &Name, scope: &Scope<'_>) -> Result<Option<String>, Failure> {
        match name {
            Name::Literal(name) => Ok(Some(name.clone())),
            Name::Slot(slot) => match self.evaluate(*slot, scope)? {
                Some(Json::String(name)) => Ok(Some(name)),
                None | Some(Json::Null) => Ok(None),
                Some(other) => {
                    Err(Failure::Failed(format!("map key must be string, got {}", literal_type_name(&other))))
                }
            },
        }
    }

    fn available(
        &self,
        piece: &Piece,
        scope: &Scope<'_>,
        failures: &mut Vec<(String, Failure)>,
    ) -> Option<Json> {
        match piece {
            Piece::Object(fields) => {
                let mut object = Map::new();
                for (name, field) in fields {
                    let Ok(Some(name)) = self.name(name, scope) else { continue };
                    if let Some(value) = self.available(field, scope, failures) {
                        object.insert(name, value);
                    }
                }
                (!object.is_empty()).then_some(Json::Object(object))
            }
            Piece::Literal(json) => Some(json.clone()),
            Piece::Slot(slot) => {
                let expression = self.expressions.get(*slot)?;
                match expression.evaluate(scope) {
                    Ok(value) => value,
                    Err(failure) => {
                        failures.push((expression.text.clone(), failure));
                        None
                    }
                }
            }
            // A list is there once all of its items are.
            Piece::Array(items) => {
                let items: Option<Vec<Json>> =
                    items.iter().map(|item| self.available(item, scope, failures)).collect();
                items.map(Json::Array)
            }
        }
    }
}
