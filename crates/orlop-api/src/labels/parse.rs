//! The text form of label selectors: `a=b,c in (d,e),!f,g>1`.

use super::selector::{Operator, Requirement, Selector};
use crate::field_error::{FieldError, FieldPath};
use crate::names;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Error,
    End,
    ClosedParenthesis,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    GreaterThan,
    Identifier,
    In,
    LessThan,
    NotEquals,
    NotIn,
    OpenParenthesis,
}

fn symbol(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::ClosedParenthesis,
        "," => Token::Comma,
        "!" => Token::Not,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        ">" => Token::GreaterThan,
        "in" => Token::In,
        "<" => Token::LessThan,
        "!=" => Token::NotEquals,
        "notin" => Token::NotIn,
        "(" => Token::OpenParenthesis,
        _ => return None,
    })
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

fn is_symbol(character: char) -> bool {
    matches!(character, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

/// Splits the text; the last item is always [`Token::End`].
fn scan(text: &str) -> Vec<(Token, String)> {
    let mut items = Vec::new();
    // Go's scanner takes a NUL byte for the end.
    let mut rest = text.split('\0').next().unwrap_or_default();
    loop {
        rest = rest.trim_start_matches(is_space);
        let Some(first) = rest.chars().next() else { break };
        if is_symbol(first) {
            let (token, literal, length) = scan_symbol(rest);
            items.push((token, literal));
            rest = rest.get(length..).unwrap_or_default();
        } else {
            let length = rest.find(|c| is_symbol(c) || is_space(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(length);
            items.push((symbol(word).unwrap_or(Token::Identifier), word.to_owned()));
            rest = after;
        }
    }
    items.push((Token::End, String::new()));
    items
}

/// Reads the longest operator, else an error token.
fn scan_symbol(rest: &str) -> (Token, String, usize) {
    let mut best = None;
    let mut length = 0;
    for character in rest.chars().take_while(|c| is_symbol(*c)) {
        length += character.len_utf8();
        match symbol(&rest[..length]) {
            Some(token) => best = Some((token, length)),
            None if best.is_some() => break,
            None => {}
        }
    }
    match best {
        Some((token, length)) => (token, rest[..length].to_owned(), length),
        None => (Token::Error, format!("error expected: keyword found '{}'", &rest[..length]), length),
    }
}

struct Parser {
    items: Vec<(Token, String)>,
    position: usize,
}

impl Parser {
    /// `in` and `notin` are words where a key or value is expected.
    fn peek(&self, words: bool) -> (Token, &str) {
        let Some((token, literal)) = self.items.get(self.position) else { return (Token::End, "") };
        let token = match token {
            Token::In | Token::NotIn if words => Token::Identifier,
            other => *other,
        };
        (token, literal)
    }

    fn take(&mut self, words: bool) -> (Token, String) {
        let (token, literal) = self.peek(words);
        let taken = (token, literal.to_owned());
        self.position += 1;
        taken
    }

    fn selector(&mut self) -> Result<Selector, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek(true) {
                (Token::Identifier | Token::Not, _) => {
                    let requirement =
                        self.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
                    requirements.push(requirement);
                    match self.take(true) {
                        (Token::End, _) => return Ok(Selector::new(requirements)),
                        (Token::Comma, _) => {
                            if let (token, literal) = self.peek(true)
                                && !matches!(token, Token::Identifier | Token::Not)
                            {
                                return Err(format!("found '{literal}', expected: identifier after ','"));
                            }
                        }
                        (_, literal) => {
                            return Err(format!("found '{literal}', expected: ',' or 'end of string'"));
                        }
                    }
                }
                (Token::End, _) => return Ok(Selector::new(requirements)),
                (_, literal) => {
                    return Err(format!("found '{literal}', expected: !, identifier, or 'end of string'"));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.take(true);
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.take(true);
        }
        if token != Token::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        let problems = names::qualified_name(&key);
        if !problems.is_empty() {
            return Err(FieldError::invalid(&FieldPath::nil(), key, problems.join("; ")).to_string());
        }
        if negated {
            return Requirement::new(&key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(true).0, Token::End | Token::Comma) {
            return Requirement::new(&key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact_value()?],
        };
        Requirement::new(&key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        Ok(match self.take(false) {
            (Token::In, _) => Operator::In,
            (Token::Equals, _) => Operator::Equals,
            (Token::DoubleEquals, _) => Operator::DoubleEquals,
            (Token::GreaterThan, _) => Operator::GreaterThan,
            (Token::LessThan, _) => Operator::LessThan,
            (Token::NotIn, _) => Operator::NotIn,
            (Token::NotEquals, _) => Operator::NotEquals,
            (_, literal) => return Err(format!("found '{literal}', expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let (token, literal) = self.take(true);
        if token != Token::OpenParenthesis {
            return Err(format!("found '{literal}' expected: '('"));
        }
        let (token, literal) = self.peek(true);
        let literal = literal.to_owned();
        match token {
            Token::Identifier | Token::Comma => {
                let values = self.value_list()?;
                match self.take(true).0 {
                    Token::ClosedParenthesis => Ok(values),
                    _ => Err(format!("found '{literal}', expected: ')'")),
                }
            }
            Token::ClosedParenthesis => {
                self.position += 1;
                Ok(vec![String::new()])
            }
            _ => Err(format!("found '{literal}', expected: ',', ')' or identifier")),
        }
    }

    /// Values up to the closing parenthesis; gaps between commas are empty values.
    fn value_list(&mut self) -> Result<Vec<String>, String> {
        let mut values = Vec::new();
        loop {
            match self.take(true) {
                (Token::Identifier, value) => {
                    values.push(value);
                    match self.peek(true) {
                        (Token::Comma, _) => {}
                        (Token::ClosedParenthesis, _) => return Ok(values),
                        (_, literal) => return Err(format!("found '{literal}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.peek(true).0 {
                        Token::ClosedParenthesis => {
                            values.push(String::new());
                            return Ok(values);
                        }
                        Token::Comma => values.push(String::new()),
                        _ => {}
                    }
                }
                (_, literal) => return Err(format!("found '{literal}', expected: ',', or identifier")),
            }
        }
    }

    fn exact_value(&mut self) -> Result<String, String> {
        if matches!(self.peek(true).0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.take(true) {
            (Token::Identifier, value) => Ok(value),
            (_, literal) => Err(format!("found '{literal}', expected: identifier")),
        }
    }
}

/// Parses a selector. The error text is Kubernetes'.
///
/// ```
/// let selector = orlop_api::labels::parse("tier in (web,api),!legacy").unwrap();
/// assert_eq!(selector.to_string(), "!legacy,tier in (api,web)");
/// ```
pub fn parse(text: &str) -> Result<Selector, String> {
    Parser { items: scan(text), position: 0 }.selector()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn selectors_print_sorted_and_round_trip() {
        for (text, printed) in [
            ("", ""),
            ("x=a,y=b,z=c", "x=a,y=b,z=c"),
            ("z = c , x==a", "x==a,z=c"),
            ("x!=a", "x!=a"),
            ("x in (b,a)", "x in (a,b)"),
            ("x notin ()", "x notin ()"),
            ("x in (,a)", "x in (,a)"),
            ("x,!y", "x,!y"),
            ("x=", "x="),
            ("x>1,y<2", "x>1,y<2"),
            ("in in (in, notin)", "in in (in,notin)"),
        ] {
            let selector = parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(selector.to_string(), printed);
            assert_eq!(parse(printed).unwrap(), selector);
        }
    }

    #[test]
    fn invalid_selectors_report_the_found_token() {
        for (text, expected) in [
            ("x=a y", "found 'y', expected: ',' or 'end of string'"),
            ("x==a==b", "found '==', expected: ',' or 'end of string'"),
            ("!x=a", "found '=', expected: ',' or 'end of string'"),
            ("x,", "found '', expected: identifier after ','"),
            ("(x", "found '(', expected: !, identifier, or 'end of string'"),
            ("x in", "unable to parse requirement: found '' expected: '('"),
            ("x in a", "unable to parse requirement: found 'a' expected: '('"),
            ("x in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("x ! y", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
            (
                "x>a",
                "unable to parse requirement: values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected, "{text}");
        }
        assert!(
            parse("a@b=c")
                .unwrap_err()
                .starts_with("unable to parse requirement: <nil>: Invalid value: \"a@b\": name part must")
        );
        assert!(parse("a=!").is_err());
    }

    #[test]
    fn matching_follows_each_operator() {
        let labels = json!({"a": "1", "b": "x"});
        for (text, expected) in [
            ("", true),
            ("a=1", true),
            ("a==2", false),
            ("a!=2", true),
            ("c!=2", true),
            ("a in (1,2)", true),
            ("c in (1)", false),
            ("a notin (1)", false),
            ("c notin (1)", true),
            ("a", true),
            ("c", false),
            ("!a", false),
            ("!c", true),
            ("a>0", true),
            ("a<1", false),
            ("b>0", false),
            ("c<9", false),
            ("a=1,b=x", true),
            ("a=1,b=y", false),
        ] {
            assert_eq!(parse(text).unwrap().matches(labels.as_object()), expected, "{text}");
        }
    }

    #[test]
    fn label_selector_objects_convert_to_selectors() {
        let selector = Selector::from_label_selector(&json!({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["x"]}]})).unwrap();
        assert_eq!(selector.to_string(), "a=1,b notin (x)");
        assert!(!Selector::from_label_selector(&json!(null)).unwrap().matches(None));
        assert!(Selector::from_label_selector(&json!({})).unwrap().matches(None));
        assert_eq!(
            Selector::from_label_selector(&json!({"matchExpressions": [{"key": "b", "operator": "X"}]}))
                .unwrap_err(),
            "\"X\" is not a valid label selector operator"
        );
    }

    proptest! {
        #[test]
        fn parser_never_panics(text in ".{0,60}") {
            let _ = parse(&text);
        }

        #[test]
        fn parsed_selectors_round_trip(text in "[a-c!=<>(), in]{0,24}") {
            if let Ok(selector) = parse(&text) {
                prop_assert_eq!(parse(&selector.to_string()).unwrap(), selector);
            }
        }
    }
}
