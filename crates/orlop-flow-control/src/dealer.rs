//! Shuffle sharding: deals each flow a hand of queues.
//!
//! The hash of a flow is a number in mixed radix, whose digits name cards of a deck that shrinks by one with each card
//! dealt. Two flows seldom share their whole hand, so one that fills its queues leaves others a free one.

/// Bits of a hash that may be used: with all 64 the last card would be uneven.
const ENTROPY_BITS_MAX: u32 = 60;
/// Largest hand that those bits can deal: 15 of 16 cards.
pub(crate) const HAND_MAX: usize = 15;
const DECK_MAX: usize = 1 << 26;

/// Returns the bits of a hash that a deal needs.
pub(crate) fn required_entropy_bits(deck: usize, hand: usize) -> u32 {
    ((deck as f64).log2() * hand as f64).ceil() as u32
}

/// Deals hands of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dealer {
    deck: usize,
    hand: usize,
}

impl Dealer {
    /// Returns a dealer of hands from a deck; `None` if a hash has too few bits for it.
    pub(crate) fn new(deck: usize, hand: usize) -> Option<Self> {
        let possible = (1..=deck).contains(&hand)
            && hand <= HAND_MAX
            && deck <= DECK_MAX
            && required_entropy_bits(deck, hand) <= ENTROPY_BITS_MAX;
        possible.then_some(Self { deck, hand })
    }

    /// Returns the number of queues.
    pub(crate) fn deck(&self) -> usize {
        self.deck
    }

    /// Deals a hand of distinct cards by a hash. Returns it in the front of `cards`.
    pub(crate) fn deal<'a>(&self, mut hash: u64, cards: &'a mut [usize; HAND_MAX]) -> &'a [usize] {
        let mut remainders = [0; HAND_MAX];
        for (index, remainder) in remainders[..self.hand].iter_mut().enumerate() {
            let left = (self.deck - index) as u64;
            *remainder = (hash % left) as usize;
            hash /= left;
        }
        for index in 0..self.hand {
            let mut card = remainders[index];
            for earlier in remainders[..index].iter().rev() {
                if card >= *earlier {
                    card += 1;
                }
            }
            cards[index] = card;
        }
        &cards[..self.hand]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn deal(deck: usize, hand: usize, hash: u64) -> Vec<usize> {
        Dealer::new(deck, hand).unwrap().deal(hash, &mut [0; HAND_MAX]).to_vec()
    }

    #[test]
    fn hands_are_those_of_kubernetes() {
        // By Kubernetes' shufflesharding.Dealer.
        assert_eq!(deal(128, 6, 0), [0, 1, 2, 3, 4, 5]);
        assert_eq!(deal(3, 3, 1), [1, 0, 2]);
        assert_eq!(deal(4, 2, 4), [0, 2]);
        assert_eq!(deal(4, 2, 5), [1, 2]);
        assert_eq!(deal(64, 6, 0x0123_4567_89ab_cdef), [47, 22, 49, 59, 8, 37]);
        assert_eq!(deal(128, 6, 0xfedc_ba98_7654_3210), [16, 96, 60, 118, 5, 4]);
        let cards = [1, 6, 14, 9, 3, 4, 11, 5, 13, 7, 12, 0, 8, 10, 15];
        assert_eq!(deal(16, 15, 987_654_321_987_654_321), cards);
    }

    #[test]
    fn decks_that_a_hash_cannot_shuffle_are_refused() {
        assert!(Dealer::new(512, 6).is_some());
        assert!(Dealer::new(1024, 6).is_some());
        assert!(Dealer::new(2048, 6).is_none());
        assert!(Dealer::new(4, 5).is_none());
        assert!(Dealer::new(0, 0).is_none());
    }

    proptest! {
        #[test]
        fn a_hand_has_distinct_cards_of_the_deck(deck in 1usize..2000, hand in 1usize..12, hash: u64) {
            let Some(dealer) = Dealer::new(deck, hand) else { return Ok(()) };
            let mut cards = [0; HAND_MAX];
            let dealt: BTreeSet<usize> = dealer.deal(hash, &mut cards).iter().copied().collect();
            prop_assert_eq!(dealt.len(), hand);
            prop_assert!(dealt.iter().all(|card| *card < deck));
        }
    }

    #[test]
    fn every_hand_is_equally_likely() {
        // All hashes below 5 * 4 deal each ordered pair of five cards once.
        let hands: BTreeSet<Vec<usize>> = (0..20).map(|hash| deal(5, 2, hash)).collect();
        assert_eq!(hands.len(), 20);
    }
}
